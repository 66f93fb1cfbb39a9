/** Reports invalid capsules; the rest of the stream cannot be read. */
export class CapsuleError extends Error {
  readonly code: "capsule-too-long" | "capsule-cut" | "datagram-without-context";

  constructor(code: CapsuleError["code"]) {
    super(code);
    this.name = "CapsuleError";
    this.code = code;
  }
}

/** Maximum payload of UDP (RFC 768) over IPv4, plus a context id of eight bytes. */
const MAX_CAPSULE_BYTES = 65_527 + 8;
const DATAGRAM = 0;
const MAX_PARTS = 1024;

/** Encodes a datagram as a DATAGRAM capsule (RFC 9297 §3.5) with context id 0, UDP payloads (RFC 9298 §4). */
export function datagramCapsule(datagram: Uint8Array): Buffer {
  const length = datagram.length + 1;
  const lengthBytes = length < 64 ? 1 : length < 16_384 ? 2 : 4;
  const capsule = Buffer.allocUnsafe(2 + lengthBytes + datagram.length);
  capsule[0] = DATAGRAM;
  if (lengthBytes === 1) capsule[1] = length;
  else if (lengthBytes === 2) capsule.writeUInt16BE(0x4000 | length, 1);
  else capsule.writeUInt32BE(0x8000_0000 + length, 1);
  capsule[1 + lengthBytes] = 0;
  capsule.set(datagram, 2 + lengthBytes);
  return capsule;
}

/** Reads capsules from a stream in chunks of any size. Skips other types and contexts, as RFC 9297 §3.2 requires. */
export class CapsuleReader {
  readonly #onDatagram: (datagram: Buffer) => void;
  #parts: Buffer[] = [];
  #have = 0;
  #need = 1;

  constructor(onDatagram: (datagram: Buffer) => void) {
    this.#onDatagram = onDatagram;
  }

  /** @throws {CapsuleError} `capsule-too-long`, `datagram-without-context`. */
  push(chunk: Buffer): void {
    this.#parts.push(chunk);
    this.#have += chunk.length;
    // Joining with every chunk would make the cost of a slow capsule grow with the square of its length.
    if (this.#have < this.#need) {
      if (this.#parts.length >= MAX_PARTS) this.#keep(Buffer.concat(this.#parts));
      return;
    }
    let data = this.#parts.length === 1 ? chunk : Buffer.concat(this.#parts);
    this.#need = 1;
    for (;;) {
      const type = readInteger(data, 0);
      const length = type === undefined ? undefined : readInteger(data, type.end);
      if (type === undefined || length === undefined) break;
      if (length.value > MAX_CAPSULE_BYTES) throw new CapsuleError("capsule-too-long");
      const end = length.end + length.value;
      if (data.length < end) {
        this.#need = end;
        break;
      }
      if (type.value === DATAGRAM) this.#take(data.subarray(length.end, end));
      data = data.subarray(end);
    }
    this.#keep(data);
  }

  /** @throws {CapsuleError} `capsule-cut` when the stream ended within a capsule. */
  end(): void {
    if (this.#have > 0) throw new CapsuleError("capsule-cut");
  }

  /** Copies the rest, so that a few bytes do not keep the whole chunk in memory. */
  #keep(data: Buffer): void {
    this.#have = data.length;
    this.#parts = data.length === 0 ? [] : [Buffer.from(data)];
  }

  #take(payload: Buffer): void {
    const context = readInteger(payload, 0);
    if (context === undefined) throw new CapsuleError("datagram-without-context");
    if (context.value === 0) this.#onDatagram(payload.subarray(context.end));
  }
}

/** Reads a variable-length integer (RFC 9000 §16); undefined if it is incomplete. */
function readInteger(data: Buffer, at: number): { readonly value: number; readonly end: number } | undefined {
  const first = data[at];
  if (first === undefined) return undefined;
  const bytes = 1 << (first >> 6);
  if (data.length < at + bytes) return undefined;
  let value = first & 0x3f;
  for (let i = 1; i < bytes; i += 1) value = value * 256 + (data[at + i] ?? 0);
  return { value, end: at + bytes };
}
