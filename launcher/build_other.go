//go:build !linux

package launcher

import (
	"fmt"
	"os"
	"syscall"
)

func (p *Program) target() (string, error) { return p.tempTarget() }

func (p *Program) sealed() error {
	if _, err := os.Stat(p.Path); err != nil {
		return fmt.Errorf("building %s: go build wrote nothing: is it package main?", p.Name)
	}
	return nil
}

func buildProcAttr() *syscall.SysProcAttr { return nil }
