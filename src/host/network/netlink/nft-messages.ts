/** Messages of nf_tables over netlink(7): linux/netfilter/nf_tables.h. Numbers are little-endian. */
import { Buffer } from "node:buffer";

/** The requests to nf_tables. */
export const Get = {
  table: 1,
  chain: 4,
  rule: 7,
  set: 10,
  element: 13,
  generation: 16,
  object: 19,
  flowtable: 23,
} as const;
export type Get = (typeof Get)[keyof typeof Get];

/** One netlink message. */
export interface Message {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  readonly body: Buffer;
}

const SUBSYSTEM = 10;
const FAMILY_INET = 1;
const REQUEST = 1;
const DUMP = 0x300;
const HEADER_BYTES = 16;
/** struct nfgenmsg: the family, and the current generation. */
export const FAMILY_BYTES = 4;
const ATTRIBUTE_BYTES = 4;
const TYPE_MASK = 0x3fff;
/** NFTA_TABLE_NAME, and NFTA_*_TABLE of a table's parts. */
const TABLE_NAME = 1;

/** Returns a request; with `isDump` for all objects of the kind that the names select. */
export function request(
  get: Get,
  {
    sequence,
    isDump,
    names,
  }: { readonly sequence: number; readonly isDump: boolean; readonly names: readonly string[] },
): Buffer {
  const attributes = names.map((name, index) => attribute(index + 1, `${name}\0`));
  const header = Buffer.alloc(HEADER_BYTES + FAMILY_BYTES);
  const all = Buffer.concat([header, ...attributes]);
  all.writeUInt32LE(all.length, 0);
  all.writeUInt16LE((SUBSYSTEM << 8) | get, 4);
  all.writeUInt16LE(REQUEST | (isDump ? DUMP : 0), 6);
  all.writeUInt32LE(sequence, 8);
  all.writeUInt8(get === Get.generation ? 0 : FAMILY_INET, HEADER_BYTES);
  return all;
}

/** Reports whether a message responds to the request of that kind. */
export function answers({ type }: Message, get: Get): boolean {
  // The type of a response is one below that of the request.
  return type === ((SUBSYSTEM << 8) | (get - 1));
}

/** Reports whether a notification is about a table of the family `inet`, or a part of it: the name is the first attribute of each. */
export function isAbout(notice: Message, table: string): boolean {
  if (notice.body[0] !== FAMILY_INET) return false;
  let isIt = false;
  eachOfAnswer(notice, (type, from, to) => {
    if (type === TABLE_NAME) isIt ||= notice.body.toString("latin1", from, to) === `${table}\0`;
  });
  return isIt;
}

/** Yields the messages of a datagram; stops at a truncated one. */
export function* messagesOf(datagram: Buffer): Iterable<Message> {
  for (let at = 0; at + HEADER_BYTES <= datagram.length;) {
    const length = datagram.readUInt32LE(at);
    if (length < HEADER_BYTES || at + length > datagram.length) return;
    yield {
      type: datagram.readUInt16LE(at + 4),
      flags: datagram.readUInt16LE(at + 6),
      sequence: datagram.readUInt32LE(at + 8),
      body: datagram.subarray(at + HEADER_BYTES, at + length),
    };
    at += (length + 3) & ~3;
  }
}

/** Calls `each` with the type, and the start and end of the value, of the attributes between two offsets. */
export function eachAttribute(
  bytes: Buffer,
  from: number,
  to: number,
  each: (type: number, from: number, to: number) => void,
): void {
  for (let at = from; at + ATTRIBUTE_BYTES <= to;) {
    const length = wordAt(bytes, at);
    if (length < ATTRIBUTE_BYTES || at + length > to) return;
    each(wordAt(bytes, at + 2) & TYPE_MASK, at + ATTRIBUTE_BYTES, at + length);
    at += (length + 3) & ~3;
  }
}

/** Reads 16 bits without the argument checks of `readUInt16LE`: a table of thousands of elements has tens of thousands of attributes. */
function wordAt(bytes: Buffer, at: number): number {
  return (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8);
}

/** Calls `each` for the attributes of a whole nf_tables message. */
export function eachOfAnswer({ body }: Message, each: (type: number, from: number, to: number) => void): void {
  eachAttribute(body, FAMILY_BYTES, body.length, each);
}

function attribute(type: number, text: string): Buffer {
  const value = Buffer.from(text);
  const bytes = Buffer.alloc((ATTRIBUTE_BYTES + value.length + 3) & ~3);
  bytes.writeUInt16LE(ATTRIBUTE_BYTES + value.length, 0);
  bytes.writeUInt16LE(type, 2);
  value.copy(bytes, ATTRIBUTE_BYTES);
  return bytes;
}
