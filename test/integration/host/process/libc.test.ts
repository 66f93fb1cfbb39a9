import { execFileSync, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { sdNotify } from "../../../../src/host/process/libc.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

describe("notifying the service manager", () => {
  const listen = (address: string): { received: Promise<string> } => {
    const script = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name = sys.argv[1]
s.bind(name.replace("@", "\\0", 1) if name[0] == "@" else name)
print("listening", flush=True)
print(s.recv(4096).decode(), flush=True)`;
    const child = spawn("python3", ["-c", script, address], { stdio: ["ignore", "pipe", "inherit"] });
    onTestFinished(() => void child.kill("SIGKILL"));
    const lines: string[] = [];
    createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
    const received = waitFor("the listener", () => lines.length > 0).then(() => {
      expect(sdNotify(address, "READY=1")).toBe(true);
      return waitFor("the message", () => lines[1]);
    });
    return { received };
  };

  test("reaches a socket by path and by abstract name", async () => {
    expect(await listen(join(tempDir(), "notify")).received).toBe("READY=1");
    expect(await listen(`@hf-test-${process.pid}`).received).toBe("READY=1");
  });

  test("reports that nothing listens or that the address is invalid", () => {
    expect(sdNotify(join(tempDir(), "absent"), "READY=1")).toBe(false);
    expect(sdNotify("relative/path", "READY=1")).toBe(false);
    expect(sdNotify("", "READY=1")).toBe(false);
    expect(sdNotify(`/${"x".repeat(200)}`, "READY=1")).toBe(false);
  });
});

test("a Node without the foreign function interface falls back to polling", () => {
  const source = (name: string): string => JSON.stringify(join(import.meta.dirname, "../../../../src/host", name));
  const code = `
process.getBuiltinModule = () => undefined;
const { sdNotify } = await import(${source("process/libc.ts")});
const { watchNetwork } = await import(${source("network/network-watch.ts")});
const { systemClock } = await import(${source("clock.ts")});
const watch = watchNetwork({ clock: systemClock(), onChange: () => {} });
console.log(watch.engine, sdNotify("/run/x", "READY=1"));`;
  const output = execFileSync(process.execPath, ["--input-type=module", "-e", code], { encoding: "utf8" });
  expect(output.trim()).toBe("poll false");
});

test("returns unused pages of the runtime's file to the kernel, and continues", () => {
  const source = (name: string): string => JSON.stringify(join(import.meta.dirname, "../../../../src/host", name));
  const code = `
const { trimMemory } = await import(${source("process/libc.ts")});
const { hostReader } = await import(${source("reader.ts")});
const reader = hostReader();
const ofFile = () => Number(/^RssFile:\\s+(\\d+) kB$/m.exec(reader.read("/proc/self/status"))[1]);
trimMemory({ read: () => "" });
const before = ofFile();
const isDone = trimMemory(reader);
const after = ofFile();
console.log(isDone, after < before - 10_000, JSON.parse("[1]").length, new Intl.NumberFormat("en").format(1234));`;
  const output = execFileSync(process.execPath, ["--input-type=module", "-e", code], { encoding: "utf8" });
  expect(output.trim()).toBe("true true 1 1,234");
});
