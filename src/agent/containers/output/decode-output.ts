import { StringDecoder } from "node:string_decoder";
import type { OutputFrame } from "../../../host/engine/engine.ts";

/** A piece of what a container wrote, as text. */
export interface OutputText {
  readonly stream: OutputFrame["stream"];
  readonly data: string;
}

/** Output as text. A character may come in two pieces, with a piece of the other stream in between. */
export async function* decodeOutput(frames: AsyncIterable<OutputFrame>): AsyncGenerator<OutputText, void> {
  const decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
  for await (const { stream, data } of frames) {
    const text = decoders[stream].write(data);
    if (text !== "") yield { stream, data: text };
  }
  for (const stream of ["stdout", "stderr"] as const) {
    const rest = decoders[stream].end();
    if (rest !== "") yield { stream, data: rest };
  }
}
