// Package lines answers JSON lines with JSON lines: one case in, one answer out, in the same order.
package lines

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
)

// Answer judges one case. An error is an input the engine could not be asked about.
type Answer func(input []byte) (any, error)

// Serve reads cases from standard input until it ends. Each worker gets an Answer of its own, so that an
// Answer may keep state between cases without locks.
func Serve(workers int, newAnswer func() (Answer, error)) error {
	type job struct {
		input  []byte
		output chan []byte
	}
	todo := make(chan job)
	order := make(chan chan []byte, 64*workers)
	for range workers {
		answer, err := newAnswer()
		if err != nil {
			return err
		}
		go func() {
			for job := range todo {
				job.output <- encode(answer, job.input)
			}
		}()
	}

	read := make(chan error, 1)
	go func() {
		defer close(order)
		read <- eachLine(os.Stdin, func(line []byte) {
			output := make(chan []byte, 1)
			order <- output
			todo <- job{bytes.Clone(line), output}
		})
	}()

	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	for output := range order {
		out.Write(<-output)
		// Whoever asks one case at a time waits for its answer: hold nothing back when nothing else is due.
		if len(order) == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return <-read
}

func eachLine(in io.Reader, do func([]byte)) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			do(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// encode turns a refusal to judge, or a crash of the engine, into {"error": …}, so that one bad case does
// not end the run.
func encode(answer Answer, input []byte) (line []byte) {
	defer func() {
		if r := recover(); r != nil {
			line = mustEncode(map[string]string{"error": fmt.Sprintf("panic: %v\n%s", r, debug.Stack())})
		}
	}()
	output, err := answer(input)
	if err != nil {
		return mustEncode(map[string]string{"error": err.Error()})
	}
	return mustEncode(output)
}

func mustEncode(value any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return buffer.Bytes()
}

// Main runs the mode named on the command line. The mode "version" prints the engine's module version as it
// was linked into this program.
func Main(engine string, modes map[string]func() error) {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("give one mode: version or one of %v", slices.Sorted(maps.Keys(modes))))
	}
	if os.Args[1] == "version" {
		fmt.Println(engine, version(engine))
		return
	}
	mode, ok := modes[os.Args[1]]
	if !ok {
		fail(fmt.Errorf("no mode %q: version or one of %v", os.Args[1], slices.Sorted(maps.Keys(modes))))
	}
	// Cases are small and short-lived: collect rarely.
	debug.SetGCPercent(800)
	if err := mode(); err != nil {
		fail(err)
	}
}

// Workers is how many cases are judged at a time: one per core.
func Workers() int { return runtime.GOMAXPROCS(0) }

func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return "unknown"
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "oracle:", err)
	os.Exit(1)
}
