import { createSocket } from "node:dgram";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { askServer, parseNameServers, readNameServers } from "../../../../src/host/net/resolver.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";

test("lists servers in order, once each, and nothing else of the file", () => {
  const text =
    "# nameserver 192.0.2.9\nsearch example.org\nnameserver 192.0.2.1\nnameserver\tfd00::53\nnameserver 192.0.2.1\n";
  expect(parseNameServers(text)).toEqual(["192.0.2.1", "fd00::53"]);
});

test("lists the servers that the stub uses", () => {
  const stub = { "/etc/resolv.conf": "nameserver 127.0.0.53\noptions edns0\n" };
  const upstream = { "/run/systemd/resolve/resolv.conf": "nameserver 192.0.2.53\n" };
  expect(readNameServers(machineRoot({ ...stub, ...upstream }).reader)).toEqual(["192.0.2.53"]);
  expect(readNameServers(machineRoot(stub).reader)).toEqual(["127.0.0.53"]);
  expect(readNameServers(machineRoot({}).reader)).toEqual([]);
});

/** A name server on loopback that answers every query with the same code and, for `code` 0, an A record. */
async function nameServer(code: number, hasAnswer = false): Promise<string> {
  const socket = createSocket("udp4");
  socket.on("message", (query, from) => {
    const question = query.subarray(12, query.indexOf(0, 12) + 5);
    const header = Buffer.from([
      query[0] ?? 0,
      query[1] ?? 0,
      0x81,
      0x80 | code,
      0,
      1,
      0,
      hasAnswer ? 1 : 0,
      0,
      0,
      0,
      0,
    ]);
    const answer = hasAnswer ? Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 77]) : Buffer.alloc(0);
    socket.send(Buffer.concat([header, question, answer]), from.port, from.address);
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  onTestFinished(() => void socket.close());
  return `127.0.0.1:${socket.address().port}`;
}

const never = new AbortController().signal;

test.each([
  ["ok", 0, true],
  ["name-not-resolved", 3, false],
  ["name-not-resolved", 2, false],
  ["misconfigured", 5, false],
] as const)("a server is %s when it answers with code %i", async (answer, code, hasAnswer) => {
  expect(await askServer(await nameServer(code, hasAnswer), "control.example.org", never)).toBe(answer);
});

test("no server, and no address", async () => {
  const server = await nameServer(0);
  const silent = createSocket("udp4").bind(0, "127.0.0.1");
  await once(silent, "listening");
  const { port } = silent.address();
  silent.close();
  expect(server).not.toBe(`127.0.0.1:${port}`);
  expect(await askServer(`127.0.0.1:${port}`, "control.example.org", never)).toBe("unreachable");
  expect(await askServer("not an address", "control.example.org", never)).toBe("misconfigured");
});

test("an abort ends the query", async () => {
  const silent = createSocket("udp4").bind(0, "127.0.0.1");
  await once(silent, "listening");
  onTestFinished(() => void silent.close());
  const stop = new AbortController();
  const requested = askServer(`127.0.0.1:${silent.address().port}`, "control.example.org", stop.signal);
  await once(silent, "message");
  stop.abort(new Error("stopped"));
  await expect(requested).rejects.toThrow("stopped");
});
