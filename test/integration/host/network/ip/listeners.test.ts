import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { expect, it } from "vitest";
import { readListeners } from "../../../../../src/host/network/ip/listeners.ts";
import { hostReader } from "../../../../../src/host/reader.ts";

it("sees the process that receives traffic of a port, for real sockets", async () => {
  const one = createServer().listen(0, "127.0.0.1");
  const both = createServer().listen(0, "::");
  const udp = createSocket("udp4").bind(0, "0.0.0.0");
  await Promise.all([once(one, "listening"), once(both, "listening"), once(udp, "listening")]);
  const portOf = (server: typeof one): number => (server.address() as AddressInfo).port;
  const found = readListeners(hostReader());
  expect(found).toContainEqual({ protocol: "tcp", address: "127.0.0.1", port: portOf(one) });
  expect(found).toContainEqual({ protocol: "tcp", address: undefined, port: portOf(both) });
  expect(found).toContainEqual({ protocol: "udp", address: undefined, port: udp.address().port });
  one.close();
  both.close();
  udp.close();
});

it("ignores missing and damaged tables", () => {
  const reader = {
    ...hostReader(),
    read: (path: string) => (path.endsWith("tcp") ? "0: zz:0050 x 0A\n 1:\n" : undefined),
  };
  expect(readListeners(reader)).toStrictEqual([]);
});
