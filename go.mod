module ichido.dev/ichido

go 1.26.0

toolchain go1.27.3
