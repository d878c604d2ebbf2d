package reach

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fakeSSH is an ssh that stays here. Without a configuration it has the key exchanges plain, with the user's those
// of configured. It writes its options to the file that is returned.
func fakeSSH(t *testing.T, plain, configured string) (options string) {
	dir := t.TempDir()
	options = filepath.Join(dir, "options")
	script := "#!/bin/sh\ncase \"$*\" in\n" +
		"*-F\\ none*-G*) echo port 22; " + plain + "; exit;;\n" +
		"*-G*) echo port 22; " + configured + "; exit;;\nesac\n" +
		"echo \"$*\" >" + options + "\nexec sh\n"
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	plainExchanges = sync.OnceValue(askPlain)
	t.Cleanup(func() { plainExchanges = sync.OnceValue(askPlain) })
	return options
}

// The slow key exchange goes to the end of the list, and only of a list that neither user nor site has configured.
func TestExchanges(t *testing.T) {
	const (
		kex   = "echo kexalgorithms "
		slow  = "sntrup761x25519-sha512,sntrup761x25519-sha512@openssh.com"
		rest  = "curve25519-sha256,ecdh-sha2-nistp256"
		usual = kex + slow + "," + rest
		quick = kex + "mlkem768x25519-sha256," + slow
	)
	for name, c := range map[string]struct{ plain, configured, want string }{
		"slow":       {usual, usual, "-o KexAlgorithms=" + rest + "," + slow},
		"configured": {usual, kex + "sntrup761x25519-sha512@openssh.com", ""},
		"quick":      {quick, quick, ""},
		"no other":   {kex + slow, kex + slow, ""},
		"old":        {"exit 255", "exit 255", ""},
		"other":      {"echo usage", "echo usage", ""},
	} {
		t.Run(name, func(t *testing.T) {
			options := fakeSSH(t, c.plain, c.configured)
			talk(t, Shell{nil, me(t)})
			text, err := os.ReadFile(options)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.TrimSpace(strings.Join(SSH[1:], " ")+" "+c.want) + " host sh\n"
			if string(text) != want {
				t.Errorf("%q, want %q", text, want)
			}
		})
	}
	t.Run("named", func(t *testing.T) {
		options := fakeSSH(t, usual, usual)
		talk(t, Shell{[]string{"ssh", "-x"}, me(t)})
		if text, _ := os.ReadFile(options); string(text) != "-x host sh\n" {
			t.Errorf("%q", text)
		}
	})
}
