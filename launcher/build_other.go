//go:build !linux

package launcher

func (p *Program) target() (string, error) { return p.tempTarget() }
