package pmi

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// How a rank that dialled PMI_PORT and the launcher prove to each other that they know the job's key (GORUN_KEY):
//
//	rank      gorun_hello version nonce=R
//	launcher  gorun_welcome version nonce=L proof=MAC("launcher", all of the below)
//	rank      gorun_proof proof=MAC("rank", the same)
//	launcher  gorun_trusted sealed=the job's secret, encrypted under MAC("seal", the same)
//
// MAC is HMAC-SHA256 under the key, over the label and over what both must agree on: version, name and size of the
// job, rank, both nonces. The labels differ, so that no proof can be handed back as the other's; the nonces are
// new each time, so that none can be used twice. The key never travels, the secret never in clear.

const (
	keySize   = 32
	nonceSize = 32
)

const (
	labelLauncher = "gorun wire-up launcher"
	labelRank     = "gorun wire-up rank"
	labelSeal     = "gorun wire-up seal"
)

var errKey = fmt.Errorf("%s is no key: it must be %d bytes in base64url, as the launcher made it (its value is not shown)", EnvKey, keySize)

// parseKey reads GORUN_KEY; "" is no key.
func parseKey(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	key, err := b64.DecodeString(text)
	if err != nil || len(key) != keySize {
		return nil, errKey
	}
	return key, nil
}

// agreement is what both sides must see alike.
type agreement struct {
	job                 string
	rank, size          int
	rankNonce, launcher []byte
}

// mac is different for each label and each difference in the agreement: every part is preceded by its length.
func (a agreement) mac(key []byte, label string) []byte {
	h := hmac.New(sha256.New, key)
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		h.Write(b)
	}
	part([]byte(label))
	part([]byte(a.job))
	for _, n := range []int{helloVersion, a.rank, a.size} {
		part(binary.BigEndian.AppendUint64(nil, uint64(n)))
	}
	part(a.rankNonce)
	part(a.launcher)
	return h.Sum(nil)
}

// proves compares in constant time.
func (a agreement) proves(key []byte, label, proof string) bool {
	b, err := b64.DecodeString(proof)
	return err == nil && hmac.Equal(b, a.mac(key, label))
}

// sealer encrypts one message: its key is of this agreement, and so never used again.
func (a agreement) sealer(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(a.mac(key, labelSeal))
	if err != nil {
		panic(err) // 32 bytes are a key of AES
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return gcm
}

func (a agreement) seal(key, secret []byte) string {
	s := a.sealer(key)
	return b64.EncodeToString(s.Seal(nil, make([]byte, s.NonceSize()), secret, nil))
}

func (a agreement) open(key []byte, sealed string) ([]byte, error) {
	b, err := b64.DecodeString(sealed)
	if err != nil {
		return nil, errors.New("the job's secret is damaged")
	}
	s := a.sealer(key)
	secret, err := s.Open(nil, make([]byte, s.NonceSize()), b, nil)
	if err != nil || len(secret) == 0 {
		return nil, errors.New("the job's secret is damaged")
	}
	return secret, nil
}

// nonceIn takes the other side's nonce from a line.
func nonceIn(l line) ([]byte, bool) {
	text, _ := l.get("nonce")
	b, err := b64.DecodeString(text)
	return b, err == nil && len(b) == nonceSize
}
