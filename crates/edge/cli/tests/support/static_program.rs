//! Programs without a C library or dynamic linker: nothing could be preloaded into them.

use std::fs;
use std::process::Command;

use super::World;

/// What it is and where: `get HOST:PORT PATH` prints the body of a page, over HTTP 1.0. Made by Go where there is Go, by gcc elsewhere.
pub(crate) fn static_program(world: &World) -> (&'static str, String) {
    let program = world.file("get").display().to_string();
    if Command::new("go").arg("version").output().is_ok() {
        fs::write(world.file("get.go"), GO).expect("written");
        let mut command = Command::new("go");
        command.args(["build", "-o", "get", "get.go"]).envs([("CGO_ENABLED", "0"), ("GO111MODULE", "off")]);
        build(&mut command, world);
        return ("a static Go program", program);
    }
    fs::write(world.file("get.c"), C).expect("written");
    build(Command::new("gcc").args(["-static", "-O2", "-o", "get", "get.c"]), world);
    ("a static C program (no go here)", program)
}

fn build(command: &mut Command, world: &World) {
    let output = command.current_dir(&world.directory).output().expect("installed by scripts/setup");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const GO: &str = r#"package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	conn, err := net.Dial("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", os.Args[2])
	all, err := io.ReadAll(conn)
	if err != nil {
		panic(err)
	}
	for i := 3; i < len(all); i++ {
		if string(all[i-3:i+1]) == "\r\n\r\n" {
			os.Stdout.Write(all[i+1:])
			return
		}
	}
	os.Exit(1)
}
"#;

const C: &str = r#"#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char *port = strchr(argv[1], ':');
    *port++ = 0;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    inet_pton(AF_INET, argv[1], &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) return 1;
    dprintf(fd, "GET %s HTTP/1.0\r\n\r\n", argv[2]);
    FILE *in = fdopen(fd, "r");
    char line[4096];
    while (fgets(line, sizeof line, in) && strcmp(line, "\r\n"));
    size_t len;
    while ((len = fread(line, 1, sizeof line, in))) fwrite(line, 1, len, stdout);
    return ferror(in) || fflush(stdout);
}
"#;
