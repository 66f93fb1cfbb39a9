import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { once } from "node:events";
import { expect, test } from "vitest";
import { hostReader } from "../../../../../src/host/reader.ts";
import { countHalfOpen, isSshLocal, parseListeners } from "../../../../../src/host/network/ip/sockets.ts";
import { machineRoot } from "../../../../support/machine/machine-root.ts";

const HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
const line = (local: string, state: string, inode: number): string =>
  `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 ${inode} 1 0 100 0 0 10 0\n`;

const EVERYWHERE = "00000000:0016";
const LOOPBACK = "0100007F:0016";

function running(pid: number, command: string, socket: number): Record<string, string> {
  return { [`/proc/${pid}/comm`]: `${command}\n`, [`/proc/${pid}/fd/3`]: `-> socket:[${socket}]` };
}

function machine(sockets: string, processes: Record<string, string>) {
  return machineRoot({
    "/proc/net/tcp": HEADER + sockets,
    "/proc/net/tcp6": HEADER,
    ...processes,
  }).reader;
}

test("sshd on every address is exposed, on loopback it is not", () => {
  expect(isSshLocal(machine(line(EVERYWHERE, "0A", 7), running(900, "sshd", 7)))).toBe(false);
  expect(isSshLocal(machine(line(LOOPBACK, "0A", 7), running(900, "sshd", 7)))).toBe(true);
});

test("sshd on another port is exposed too, other programs do not matter", () => {
  expect(isSshLocal(machine(line("00000000:08AE", "0A", 7), running(900, "sshd", 7)))).toBe(false);
  expect(isSshLocal(machine(line("00000000:0050", "0A", 8), running(900, "nginx", 8)))).toBe(true);
});

test("init holding the SSH port starts sshd on demand", () => {
  expect(isSshLocal(machine(line(EVERYWHERE, "0A", 7), running(1, "systemd", 7)))).toBe(false);
});

test("unknown: no visible process at the SSH port, or no table", () => {
  expect(isSshLocal(machine(line(EVERYWHERE, "0A", 7), running(900, "other", 99)))).toBeUndefined();
  expect(isSshLocal(machine(line("00000000:08AE", "0A", 7), { "/proc/900/comm": "sshd\n" }))).toBeUndefined();
  expect(isSshLocal(machineRoot({}).reader)).toBeUndefined();
});

test("loopback addresses of both families", () => {
  const listeners = parseListeners(
    HEADER +
      line("0100007F:0016", "0A", 1) +
      line("00000000000000000000000001000000:0016", "0A", 2) +
      line("0000000000000000FFFF00000100007F:0016", "0A", 3) +
      line("00000000000000000000000000000000:0016", "0A", 4) +
      line("0200A8C0:0016", "01", 5),
  );
  expect(listeners.map(({ inode, isLoopback }) => [inode, isLoopback])).toEqual([
    [1, true],
    [2, true],
    [3, true],
    [4, false],
  ]);
});

test("finds a socket of this process by its port, and as loopback", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  expect(parseListeners(hostReader().read("/proc/net/tcp") ?? "")).toContainEqual(
    expect.objectContaining({ port, isLoopback: true }),
  );
  server.close();
});

test("counts half-open connections across pieces of a large table", async () => {
  const many = line("0100007F:1F90", "01", 1).repeat(1000) + line("0100007F:1F90", "03", 0).repeat(700);
  const { root } = machineRoot({
    "/proc/net/tcp": HEADER + many + line("0100007F:1F90", "02", 1),
    "/proc/net/tcp6": HEADER + line("0".repeat(32) + ":1F90", "02", 1),
  });
  expect(await countHalfOpen(root)).toBe(702);
  expect(await countHalfOpen(machineRoot({}).root)).toBeUndefined();
  expect(await countHalfOpen()).toBeGreaterThanOrEqual(0);
});
