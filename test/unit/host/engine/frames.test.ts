import fc from "fast-check";
import { expect, test } from "vitest";
import type { OutputFrame } from "../../../../src/host/engine/engine.ts";
import { framesOf } from "../../../../src/host/engine/frames.ts";

function frame(stream: number, data: Buffer): Buffer {
  const header = Buffer.alloc(8);
  header[0] = stream;
  header.writeUInt32BE(data.length, 4);
  return Buffer.concat([header, data]);
}

async function* pieces(data: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < data.length; at += size) yield data.subarray(at, at + size);
}

async function joined(data: Buffer, size: number, hasTerminal = false): Promise<Record<OutputFrame["stream"], string>> {
  const text = { stdout: "", stderr: "" };
  for await (const { stream, data: piece } of framesOf(pieces(data, size), hasTerminal)) {
    text[stream] += piece.toString("latin1");
  }
  return text;
}

test("frames are complete, wherever they were split", async () => {
  const frames = fc.array(fc.tuple(fc.constantFrom(0, 1, 2), fc.uint8Array({ maxLength: 40 })), { maxLength: 12 });
  await fc.assert(
    fc.asyncProperty(frames, fc.integer({ min: 1, max: 60 }), async (list, size) => {
      const data = Buffer.concat(list.map(([stream, bytes]) => frame(stream, Buffer.from(bytes))));
      const text = (wanted: boolean): string =>
        list
          .map(([stream, bytes]) => ((stream === 2) === wanted ? Buffer.from(bytes).toString("latin1") : ""))
          .join("");
      expect(await joined(data, size)).toEqual({ stdout: text(false), stderr: text(true) });
    }),
  );
});

test("buffers nothing of a frame that claims 4 GiB", async () => {
  const header = Buffer.from([1, 0, 0, 0, 255, 255, 255, 255]);
  const source = pieces(Buffer.concat([header, Buffer.alloc(100, "x")]), 50);
  const frames = framesOf(source, false);
  expect((await frames.next()).value?.data).toHaveLength(42);
  expect((await frames.next()).value?.data).toHaveLength(50);
});

test("a malformed or cut frame is an error", async () => {
  const wrong = [
    Buffer.from("plain text"),
    Buffer.from([3, 0, 0, 0, 0, 0, 0, 1, 65]),
    Buffer.from([1, 0, 1, 0, 0, 0, 0, 1, 65]),
    Buffer.from([1, 0, 0]),
    frame(1, Buffer.from("abc")).subarray(0, 10),
  ];
  for (const data of wrong) await expect(joined(data, 3)).rejects.toMatchObject({ code: "engine-unwell" });
});

test("everything from a terminal is output, unchanged", async () => {
  expect(await joined(Buffer.from("\u0001\u0000plain"), 2, true)).toEqual({ stdout: "\u0001\u0000plain", stderr: "" });
});
