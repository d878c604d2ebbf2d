package main

import (
	"errors"
	"strings"
)

// shellWords cuts a text into words as sh does: at blanks, but for those in quotes or behind a backslash. Variables and
// patterns are not expanded.
func shellWords(text string) (words []string, err error) {
	var word strings.Builder
	begun := false // word is one, though it may be empty
	quote := rune(0)
	escaped := false
	for _, c := range text {
		switch {
		case escaped:
			if quote == '"' && c != '"' && c != '\\' && c != '$' && c != '`' {
				word.WriteByte('\\')
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '"' || c == '\'':
			quote, begun = c, true
		case strings.ContainsRune(" \t\r\n", c):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed, or a backslash is the last character")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
