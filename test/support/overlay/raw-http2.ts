// Raw HTTP/2 (RFC 9113), for frames that no proper client sends.

export const FRAME = { data: 0, headers: 1, reset: 3, settings: 4, ping: 6, window: 8 } as const;
const FLAG_END_HEADERS = 4;

export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

/** One frame (RFC 9113 §4.1). */
export function frame(type: number, flags: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A CONNECT in literal fields that enter no table (RFC 7541 §6.2.2). */
export function connectFrame(stream: number, authority: string): Buffer {
  const text = (value: string): Buffer => Buffer.concat([Buffer.from([value.length]), Buffer.from(value)]);
  const block = Buffer.concat([Buffer.from([0x02]), text("CONNECT"), Buffer.from([0x01]), text(authority)]);
  return frame(FRAME.headers, FLAG_END_HEADERS, stream, block);
}

export function resetFrame(stream: number, code = 8): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(code);
  return frame(FRAME.reset, 0, stream, payload);
}
