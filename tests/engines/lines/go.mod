module gpuflow.test/engines/lines

go 1.26.0
