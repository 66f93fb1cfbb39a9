import { StringDecoder } from "node:string_decoder";
import type { OutputFrame } from "../../../host/engine/engine.ts";

/** A piece of a container's output as text. */
export interface OutputText {
  readonly stream: OutputFrame["stream"];
  readonly data: string;
}

/** Decodes output to text. A character may be split over two pieces with the other stream in between. */
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
