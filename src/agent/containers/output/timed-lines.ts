import { StringDecoder } from "node:string_decoder";
import type { OutputFrame } from "../../../host/engine/engine.ts";

/** A piece of a container's output with its time. */
export interface TimedText {
  readonly stream: OutputFrame["stream"];
  readonly text: string;
  /** Unix milliseconds. */
  readonly at: number;
  /** Position after it: Unix seconds with nanoseconds. */
  readonly next: string;
}

/** Maximum length of the engine's time before each line, and each part of a long line. */
const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z /;
const BEGINS_LIKE_TIME = /^[\d:T.Z-]*$/;
const TIME_MAX = 40;

interface Side {
  readonly decoder: StringDecoder;
  /** Prefix of a possible time. */
  held: Buffer;
  isWithinLine: boolean;
  at: number;
  next: string;
}

/** Returns a parser that removes the engine's times from output. */
export function timedLines(): (frame: OutputFrame) => readonly TimedText[] {
  const sideOf = (): Side => ({
    decoder: new StringDecoder("utf8"),
    held: Buffer.alloc(0),
    isWithinLine: false,
    at: 0,
    next: "0",
  });
  const sides = { stdout: sideOf(), stderr: sideOf() };
  return ({ stream, data }) => {
    const side = sides[stream];
    const pieces: TimedText[] = [];
    let rest = side.held.length === 0 ? data : Buffer.concat([side.held, data]);
    side.held = Buffer.alloc(0);
    // A time within a line occurs only at the start of a piece.
    let mayBeTime = true;
    while (rest.length > 0) {
      if (mayBeTime || !side.isWithinLine) {
        const head = rest.subarray(0, TIME_MAX).toString("latin1");
        const time = TIME.exec(head);
        if (time !== null) {
          rest = rest.subarray(time[0].length);
          Object.assign(side, momentOf(time[1] ?? "", time[2] ?? ""));
        } else if (!side.isWithinLine && rest.length < TIME_MAX && BEGINS_LIKE_TIME.test(head)) {
          side.held = rest;
          break;
        }
        mayBeTime = false;
      }
      const end = rest.indexOf(0x0a) + 1;
      const part = end === 0 ? rest : rest.subarray(0, end);
      rest = rest.subarray(part.length);
      side.isWithinLine = end === 0;
      const text = side.decoder.write(part);
      if (text !== "") pieces.push({ stream, text, at: side.at, next: side.next });
    }
    return pieces;
  };
}

function momentOf(second: string, fraction: string): { readonly at: number; readonly next: string } {
  const seconds = Math.floor(Date.parse(`${second}Z`) / 1000);
  const nanoseconds = BigInt(fraction.padEnd(9, "0"));
  const next = BigInt(seconds) * 1_000_000_000n + nanoseconds + 1n;
  return {
    at: seconds * 1000 + Number(nanoseconds / 1_000_000n),
    next: `${next / 1_000_000_000n}.${String(next % 1_000_000_000n).padStart(9, "0")}`,
  };
}
