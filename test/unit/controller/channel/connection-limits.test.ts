import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { ConnectionLimits } from "../../../../src/controller/channel/connection-limits.ts";
import { SERVER_OPTIONS } from "../../../../src/controller/channel/server.ts";
import { sourcesOf, type SourceOptions } from "../../../../src/controller/http/sources.ts";

/** The part of a socket that the limits use. */
class Connection extends EventEmitter {
  readonly remoteAddress: string;
  readonly remotePort: number;
  isCut = false;

  constructor(remoteAddress: string, remotePort: number) {
    super();
    this.remoteAddress = remoteAddress;
    this.remotePort = remotePort;
  }

  destroy(): void {
    this.isCut = true;
  }
}

function bench(options: Partial<SourceOptions> = {}) {
  const server = createServer();
  const limits = new ConnectionLimits(server, {
    maxSessions: 100,
    sources: sourcesOf({ trustedProxies: [], hasFrontEnd: false, ...options }),
  });
  let port = 1000;
  const open = (address: string): Connection => {
    const socket = new Connection(address, (port += 1));
    limits.admit(socket);
    return socket;
  };
  const fill = (address: string) => Array.from({ length: 256 }, () => open(address));
  return { server, limits, open, fill };
}

test("one address has 256 connections that carry no WebSocket, and others have theirs", () => {
  const { open, fill, limits } = bench();
  const [first, second] = fill("192.0.2.1");
  expect(open("192.0.2.1").isCut).toBe(true);
  expect(open("::ffff:192.0.2.1").isCut).toBe(true);
  expect(open("192.0.2.2").isCut).toBe(false);
  first?.emit("close");
  expect(open("192.0.2.1").isCut).toBe(false);
  expect(open("192.0.2.1").isCut).toBe(true);
  if (second !== undefined) limits.upgraded(second);
  expect(open("192.0.2.1").isCut).toBe(false);
});

test("a front end is not limited, on this machine or another", () => {
  const { open, fill } = bench();
  fill("127.0.0.1");
  expect(open("127.0.0.1").isCut).toBe(false);
  const behind = bench({ hasFrontEnd: true });
  behind.fill("192.0.2.1");
  expect(behind.open("192.0.2.1").isCut).toBe(false);
});

test("a front end that names its clients is not limited, and who comes without one is", () => {
  const { open, fill } = bench({ hasFrontEnd: true, trustedProxies: ["192.0.2.0/30"] });
  fill("192.0.2.1");
  expect(open("192.0.2.1").isCut).toBe(false);
  fill("192.0.2.9");
  expect(open("192.0.2.9").isCut).toBe(true);
});

test("the addresses of one IPv6 subscriber count as one", () => {
  const { open } = bench();
  for (let at = 0; at < 256; at += 1) open(`2001:db8:1:2::${at.toString(16)}`);
  expect(open("2001:db8:1:2:ffff::1").isCut).toBe(true);
  expect(open("2001:db8:1:3::1").isCut).toBe(false);
});

test("the port takes the sessions and 4,096 connections more", () => {
  expect(bench().server.maxConnections).toBe(4196);
});

test("a head that takes too long is cut soon after its time", async () => {
  const server = createServer(SERVER_OPTIONS);
  server.headersTimeout = 100;
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const begun = performance.now();
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.write("GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ");
  socket.resume();
  await once(socket, "close");
  // Node's own interval of 30 s would be seen.
  expect(performance.now() - begun).toBeLessThan(20_000);
});
