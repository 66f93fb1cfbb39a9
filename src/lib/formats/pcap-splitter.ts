import { InputError } from "../../errors.ts";

/** A part of a split capture: bytes for the current file, or the start of the next file. */
export type PcapPart = { readonly is: "file" } | { readonly is: "bytes"; readonly bytes: Buffer };

const FILE_HEADER = 24;
const RECORD_HEADER = 16;
/** MAXIMUM_SNAPLEN of libpcap: the most bytes it stores of a packet. */
const MAX_PACKET = 262_144;
/** Byte order by the magic number, for files in microseconds and nanoseconds. */
const MAGIC: ReadonlyMap<number, boolean> = new Map([
  [0xd4c3b2a1, true],
  [0x4d3cb2a1, true],
  [0xa1b2c3d4, false],
  [0xa1b23c4d, false],
]);

/** Splits a pcap stream (pcap-savefile(5)) between packets into files of limited size, each readable on its own. */
export class PcapSplitter {
  packets = 0;
  readonly #fileBytes: number;
  #header: Buffer | undefined;
  #isLittle = true;
  #rest: Buffer = Buffer.alloc(0);
  /** Bytes of the current file. */
  #written = 0;

  constructor(fileBytes: number) {
    this.#fileBytes = fileBytes;
  }

  /** Processes the next bytes of the stream. @throws {InputError} `bad-capture` if it is not a capture. */
  take(bytes: Buffer): readonly PcapPart[] {
    const parts: PcapPart[] = [];
    let data = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    if (this.#header === undefined) {
      if (data.length < FILE_HEADER) return this.#keep(data, parts);
      this.#begin(data.subarray(0, FILE_HEADER), parts);
      data = data.subarray(FILE_HEADER);
    }
    let from = 0;
    let at = 0;
    for (;;) {
      const end = this.#recordEnd(data, at);
      if (end === undefined || end > data.length) break;
      if (this.#written + (end - from) > this.#fileBytes && this.#written + (at - from) > FILE_HEADER) {
        this.#put(data.subarray(from, at), parts);
        from = at;
        this.#begin(this.#header, parts);
      }
      at = end;
      this.packets += 1;
    }
    this.#put(data.subarray(from, at), parts);
    return this.#keep(data.subarray(at), parts);
  }

  #begin(header: Buffer | undefined, parts: PcapPart[]): void {
    if (header === undefined) return;
    if (this.#header === undefined) {
      const isLittle = MAGIC.get(header.readUInt32BE(0));
      if (isLittle === undefined) throw new InputError("bad-capture", "the output of tcpdump is no capture");
      this.#isLittle = isLittle;
      this.#header = Buffer.from(header);
    }
    parts.push({ is: "file" }, { is: "bytes", bytes: this.#header });
    this.#written = FILE_HEADER;
  }

  #put(bytes: Buffer, parts: PcapPart[]): void {
    if (bytes.length === 0) return;
    this.#written += bytes.length;
    parts.push({ is: "bytes", bytes });
  }

  #recordEnd(data: Buffer, at: number): number | undefined {
    if (data.length - at < RECORD_HEADER) return undefined;
    const length = this.#isLittle ? data.readUInt32LE(at + 8) : data.readUInt32BE(at + 8);
    if (length > MAX_PACKET) throw new InputError("bad-capture", `tcpdump wrote a packet of ${length} bytes`);
    return at + RECORD_HEADER + length;
  }

  #keep(rest: Buffer, parts: readonly PcapPart[]): readonly PcapPart[] {
    this.#rest = Buffer.from(rest);
    return parts;
  }
}
