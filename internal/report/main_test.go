package report

import (
	"flag"
	"os"
	"testing"

	"github.com/gorun-mpi/mpi/internal/testkit/proc"
)

var shots = flag.String("shots", "", "put pictures of the pages into this folder")

func TestMain(m *testing.M) { os.Exit(proc.Main(m)) }
