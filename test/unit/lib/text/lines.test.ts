import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { linesOf } from "../../../../src/lib/text/lines.ts";

async function* streamOf(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

async function collect(chunks: readonly Uint8Array[], maxBytes = 1000): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of linesOf(streamOf(chunks), maxBytes)) lines.push(Buffer.from(line).toString());
  return lines;
}

describe("linesOf", () => {
  it("gives the same lines for any split of the bytes", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.string({ unit: "grapheme", maxLength: 20 }).map((text) => text.replaceAll("\n", " "))),
        fc.array(fc.nat(7)),
        async (lines, cuts) => {
          const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(""));
          const chunks: Buffer[] = [];
          let from = 0;
          for (const cut of cuts) {
            chunks.push(bytes.subarray(from, from + cut));
            from += cut;
          }
          chunks.push(bytes.subarray(from));
          expect(await collect(chunks)).toEqual(lines.filter((line) => line !== ""));
        },
      ),
    );
  });

  it("yields a last line without a newline", async () => {
    expect(await collect([Buffer.from("a\nb")])).toEqual(["a", "b"]);
  });

  it("stops at a line over the limit before its end", async () => {
    let pulled = 0;
    async function* endless(): AsyncGenerator<Uint8Array> {
      for (;;) {
        pulled += 1;
        yield Buffer.alloc(100, "x");
      }
    }
    const lines = linesOf(endless(), 250);
    await expect(lines.next()).rejects.toMatchObject({ code: "too-large" });
    expect(pulled).toBe(3);
  });
});
