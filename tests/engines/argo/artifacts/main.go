// Command artifacts moves a directory to S3 and back as Argo's executor does, for a benchmark:
//
//	artifacts save|load tgz|none DIRECTORY BUCKET KEY
//
// Archives are made and objects are moved by Argo's own packages. Its function that unpacks an archive is private, so
// unpacking is written out here. The server and the credentials come from AWS's usual variables.
package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	wfv1 "github.com/argoproj/argo-workflows/v4/pkg/apis/workflow/v1alpha1"
	"github.com/argoproj/argo-workflows/v4/util/archive"
	"github.com/argoproj/argo-workflows/v4/util/logging"
	"github.com/argoproj/argo-workflows/v4/workflow/artifacts/s3"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) != 5 {
		return errors.New("usage: artifacts save|load tgz|none DIRECTORY BUCKET KEY")
	}
	action, way, folder := words[0], words[1], words[2]
	artifact := &wfv1.Artifact{Name: "it"}
	artifact.S3 = &wfv1.S3Artifact{Key: words[4], S3Bucket: wfv1.S3Bucket{Bucket: words[3]}}
	endpoint, err := url.Parse(os.Getenv("AWS_ENDPOINT_URL"))
	if err != nil {
		return err
	}
	driver := &s3.ArtifactDriver{
		Endpoint: endpoint.Host, Secure: endpoint.Scheme == "https", Region: os.Getenv("AWS_DEFAULT_REGION"),
		AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"), SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
	}
	logger := logging.NewSlogLoggerCustom(logging.Error, logging.Text, io.Discard)
	ctx := logging.WithLogger(context.Background(), logger)
	switch {
	case action == "save" && way == "none":
		return driver.Save(ctx, folder, artifact)
	case action == "save":
		packed := folder + ".tgz"
		defer os.Remove(packed)
		if err := pack(ctx, folder, packed); err != nil {
			return err
		}
		return driver.Save(ctx, packed, artifact)
	case way == "none":
		return driver.Load(ctx, artifact, folder)
	default:
		packed := folder + ".tmp"
		defer os.Remove(packed)
		if err := driver.Load(ctx, artifact, packed); err != nil {
			return err
		}
		return unpack(packed, folder)
	}
}

func pack(ctx context.Context, folder, packed string) error {
	file, err := os.Create(packed)
	if err != nil {
		return err
	}
	defer file.Close()
	return archive.TarGzToWriter(ctx, folder, gzip.DefaultCompression, bufio.NewWriter(file))
}

func unpack(packed, folder string) error {
	file, err := os.Open(packed)
	if err != nil {
		return err
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	content := tar.NewReader(plain)
	for {
		header, err := content.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		target := filepath.Join(folder, filepath.Join("/", header.Name))
		if header.FileInfo().IsDir() {
			if err := os.MkdirAll(target, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := write(target, content, header.FileInfo().Mode()); err != nil {
			return err
		}
	}
}

func write(target string, content io.Reader, mode os.FileMode) error {
	file, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
