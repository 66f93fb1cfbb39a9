import * as fc from "fast-check";
import { expect, test } from "vitest";
import { netlinkAddress, parseChanges } from "../../../../../src/host/network/netlink/netlink.ts";
import { unixAddress } from "../../../../../src/host/process/libc.ts";

function message(type: number, payload: number): Buffer {
  const bytes = Buffer.alloc(Math.ceil((16 + payload) / 4) * 4);
  bytes.writeUInt32LE(16 + payload, 0);
  bytes.writeUInt16LE(type, 4);
  return bytes;
}

const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

test("one datagram can announce several changes; other messages are skipped", () => {
  const datagram = Buffer.concat([message(16, 5), message(3, 0), message(25, 12), message(20, 1)]);
  expect([...parseChanges(viewOf(datagram))]).toEqual(["link", "route", "address"]);
});

test("a damaged datagram ends the parser", () => {
  expect(parseChanges(viewOf(Buffer.alloc(64))).size).toBe(0);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      expect(parseChanges(viewOf(Uint8Array.from(bytes))).size).toBeLessThanOrEqual(3);
    }),
  );
});

test("addresses of sockets", () => {
  expect([...netlinkAddress(0x551)]).toEqual([16, 0, 0, 0, 0, 0, 0, 0, 0x51, 5, 0, 0]);
  expect([...(unixAddress("/a") ?? [])]).toEqual([1, 0, 0x2f, 0x61, 0]);
  expect([...(unixAddress("@a") ?? [])]).toEqual([1, 0, 0, 0x61]);
  expect(unixAddress("vsock:1:2")).toBeUndefined();
});
