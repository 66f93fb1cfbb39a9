import type { OutputFrame } from "./engine.ts";
import { unwell } from "./failure.ts";

const HEADER = 8;

/**
 * Splits the engine's multiplexed output: each frame starts with 8 bytes that hold the stream and its big-endian length. Yields a
 * frame in pieces as they arrive, so nothing is buffered, however large its length. Terminals have no frames.
 * @throws {HostError} `engine-unwell` if the output has another format or ends within a frame.
 */
export async function* framesOf(
  source: AsyncIterable<Buffer>,
  hasTerminal: boolean,
): AsyncGenerator<OutputFrame, void> {
  let header = Buffer.alloc(0);
  let stream: OutputFrame["stream"] = "stdout";
  let left = 0;
  for await (const piece of source) {
    if (hasTerminal) {
      yield { stream, data: piece };
      continue;
    }
    let rest = piece;
    while (rest.length > 0) {
      if (left > 0) {
        const data = rest.subarray(0, left);
        left -= data.length;
        rest = rest.subarray(data.length);
        yield { stream, data };
        continue;
      }
      const wanted = HEADER - header.length;
      header = Buffer.concat([header, rest.subarray(0, wanted)]);
      rest = rest.subarray(wanted);
      if (header.length < HEADER) continue;
      stream = streamOf(header);
      left = header.readUInt32BE(4);
      header = Buffer.alloc(0);
    }
  }
  if (left > 0 || header.length > 0) throw unwell("the container engine's output ends in the middle");
}

function streamOf(header: Buffer): OutputFrame["stream"] {
  const kind = header[0] ?? 255;
  // 0 is standard input, which the engine sends as output if it is echoed.
  if (kind > 2 || header.readUIntBE(1, 3) !== 0) throw unwell("the container engine's output is not in frames");
  return kind === 2 ? "stderr" : "stdout";
}
