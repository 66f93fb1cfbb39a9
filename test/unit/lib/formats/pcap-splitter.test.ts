import { expect, test } from "vitest";
import { PcapSplitter } from "../../../../src/lib/formats/pcap-splitter.ts";
import { somePcap } from "../../../support/some-pcap.ts";

/** The files from a stream that arrives in pieces of this size. */
function filesOf(stream: Buffer, fileBytes: number, piece: number): readonly Buffer[] {
  const splitter = new PcapSplitter(fileBytes);
  const files: Buffer[][] = [];
  for (let at = 0; at < stream.length; at += piece) {
    for (const part of splitter.take(stream.subarray(at, at + piece))) {
      if (part.is === "file") files.push([]);
      else files.at(-1)?.push(Buffer.from(part.bytes));
    }
  }
  return files.map((parts) => Buffer.concat(parts));
}

test.each([1, 7, 16, 40, 1000, 100_000])("splits a stream in pieces of %i bytes between packets", (piece) => {
  const lengths = [100, 200, 60, 0, 500, 90];
  const stream = somePcap(lengths);
  const files = filesOf(stream, 500, piece);
  const header = stream.subarray(0, 24);
  expect(files.map(({ length }) => length)).toEqual([24 + 116 + 216 + 76 + 16, 24 + 516, 24 + 106]);
  expect(files.every((file) => file.subarray(0, 24).equals(header))).toBe(true);
  expect(Buffer.concat([header, ...files.map((file) => file.subarray(24))])).toEqual(stream);
});

test("counts packets in either byte order", () => {
  const splitter = new PcapSplitter(10_000);
  splitter.take(somePcap([10, 20, 30], false));
  expect(splitter.packets).toBe(3);
});

test("refuses what is not a capture", () => {
  expect(() => new PcapSplitter(100).take(Buffer.alloc(64, 7))).toThrow("no capture");
  const broken = somePcap([10]);
  broken.writeUInt32LE(0xff_ff_ff, 24 + 8);
  expect(() => new PcapSplitter(100).take(broken)).toThrow("a packet of 16777215 bytes");
});
