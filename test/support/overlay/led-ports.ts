import { spawn } from "node:child_process";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { deathTie } from "../../../src/host/process/death-tie.ts";
import { SEARCH_PATH } from "../../../src/host/process/exec.ts";
import type { TestEngine } from "../containers/docker-engine.ts";

/** Leads these ports of the engine's loopback to ours. Returns the function that ends it. */
export async function leadPorts(
  dir: string,
  engine: TestEngine,
  ports: readonly number[],
): Promise<() => Promise<void>> {
  const ends = await Promise.all(ports.map((port) => leadOne(join(dir, `${port}.sock`), engine, port)));
  return async () => void (await Promise.all(ends.map((end) => end())));
}

async function leadOne(path: string, engine: TestEngine, port: number): Promise<() => Promise<void>> {
  const sockets = new Set<Socket>();
  const outside = createServer((inner) => {
    const outer = connect(port, "127.0.0.1");
    for (const socket of [inner, outer]) {
      sockets.add(socket);
      socket.on("error", () => [inner, outer].map((one) => one.destroy()));
      socket.once("close", () => sockets.delete(socket));
    }
    inner.pipe(outer).pipe(inner);
  });
  await new Promise<void>((resolve) => outside.listen(path, resolve));
  const script = `
    const { createServer, connect } = require("node:net");
    createServer((socket) => {
      const out = connect(${JSON.stringify(path)}).on("error", () => socket.destroy());
      socket.on("error", () => out.destroy()).pipe(out).pipe(socket);
    }).listen(${port}, "127.0.0.1", () => console.log("ready"));`;
  const tied = deathTie(SEARCH_PATH)({ file: process.execPath, args: ["-e", script] });
  const [command = "", ...args] = [...engine.within, tied.file, ...tied.args];
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve, reject) => {
    child.stdout.once("data", resolve);
    child.once("error", reject);
  });
  return async () => {
    child.kill("SIGKILL");
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => outside.close(resolve));
  };
}
