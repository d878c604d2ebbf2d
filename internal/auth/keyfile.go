package auth

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
)

// KeySize is how many bytes a key in a file has.
const KeySize = 32

// ReadKey reads a key from a file, where it is in base64. The error never says what is in the file.
func ReadKey(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != KeySize {
		return nil, fmt.Errorf("%s must hold %d bytes in base64 (head -c %[2]d /dev/urandom | base64)", file, KeySize)
	}
	return key, nil
}
