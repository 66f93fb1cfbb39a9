import { Buffer } from "node:buffer";
import { openNetlink } from "../netlink/netlink-socket.ts";
import { answerBuffer, exchange } from "../netlink/netlink-exchange.ts";
import { eachAttribute, type Message } from "../netlink/nft-messages.ts";
import { OUR_PROTOCOL } from "../state/state.ts";

/**
 * The protocol of addresses (IFA_PROTO), for an ip(8) without support. It survives a rename of the link, whereas the kernel
 * rewrites labels.
 */
export interface AddressMarks {
  /** Returns the addresses with our protocol; none if the kernel cannot be asked or does not support it. */
  read(): ReadonlySet<string>;
  /** Sets our protocol on the given addresses that exist and have no lifetime, if the kernel supports it. */
  mark(addresses: readonly { readonly link: string; readonly address: string }[]): void;
}

/** Returns an address in the form of `read`: link index and address. */
export function addressMark(index: number, address: string): string {
  return `${index} ${address}`;
}

const NETLINK_ROUTE = 0;
/** RTM_NEWADDR and RTM_GETADDR of rtnetlink(7). */
const NEW_ADDRESS = 20;
const GET_ADDRESS = 22;
/** Flags of netlink(7): a dump request; a replacing request with an acknowledgement. */
const DUMP = 0x301;
const REPLACE = 0x105;
const AF_INET = 2;
const HEADER_BYTES = 16;
/** struct ifaddrmsg: family, prefix length, flags, scope, index. */
const IFADDRMSG_BYTES = 8;
const ATTRIBUTE = { address: 1, local: 2, label: 3, flags: 8, rank: 9, protocol: 11 } as const;
const PERMANENT = 0x80;

/** An address in the kernel, with the bytes of its message. */
interface Found {
  readonly index: number;
  readonly address: string;
  readonly label: string;
  readonly isPermanent: boolean;
  readonly protocol: number;
  readonly head: Buffer;
  /** Attributes that identify it. */
  readonly identity: Buffer;
}

/** Reads and sets the addresses of this network namespace in the kernel. */
export const kernelAddressMarks: AddressMarks = {
  read() {
    return new Set(
      list()
        .filter(({ protocol }) => protocol === OUR_PROTOCOL)
        .map(({ index, address }) => addressMark(index, address)),
    );
  },
  mark(addresses) {
    if (addresses.length === 0) return;
    const wanted = new Set(addresses.map(({ link, address }) => `${link} ${address}`));
    const found = list().filter(
      ({ address, label, isPermanent, protocol }) =>
        isPermanent && protocol !== OUR_PROTOCOL && wanted.has(`${label.split(":", 1)[0]} ${address}`),
    );
    if (found.length === 0) return;
    using socket = openNetlink(NETLINK_ROUTE);
    if (socket === undefined) return;
    const buffer = answerBuffer();
    for (const [at, { head, identity }] of found.entries()) {
      const protocol = attribute(ATTRIBUTE.protocol, Buffer.of(OUR_PROTOCOL));
      const sequence = at + 1;
      const message = requestOf(NEW_ADDRESS, REPLACE, sequence, Buffer.concat([head, identity, protocol]));
      exchange(socket, buffer, { message, sequence, isDump: false }, () => undefined);
    }
  },
};

function list(): readonly Found[] {
  using socket = openNetlink(NETLINK_ROUTE);
  if (socket === undefined) return [];
  const found: Found[] = [];
  const head = Buffer.alloc(IFADDRMSG_BYTES);
  head.writeUInt8(AF_INET, 0);
  const message = requestOf(GET_ADDRESS, DUMP, 1, head);
  exchange(socket, answerBuffer(), { message, sequence: 1, isDump: true }, (answer) => {
    const one = parseAddress(answer);
    if (one !== undefined) found.push(one);
  });
  return found;
}

/** Parses the IPv4 address of a kernel message; returns undefined for another message. */
function parseAddress({ type, body }: Pick<Message, "type" | "body">): Found | undefined {
  if (type !== NEW_ADDRESS || body.length < IFADDRMSG_BYTES || body[0] !== AF_INET) return undefined;
  let [local, label, flags, protocol] = ["", "", body.readUInt8(2), 0];
  const identity: Buffer[] = [];
  eachAttribute(body, IFADDRMSG_BYTES, body.length, (kind, from, to) => {
    const value = body.subarray(from, to);
    if (kind === ATTRIBUTE.local && value.length === 4) local = value.join(".");
    else if (kind === ATTRIBUTE.label) label = value.toString("utf8").replace(/\0.*$/s, "");
    else if (kind === ATTRIBUTE.flags && value.length === 4) flags = value.readUInt32LE(0);
    else if (kind === ATTRIBUTE.protocol && value.length === 1) protocol = value.readUInt8(0);
    const isIdentity = kind === ATTRIBUTE.local || kind === ATTRIBUTE.address || kind === ATTRIBUTE.rank;
    if (isIdentity) identity.push(attribute(kind, value));
  });
  if (local === "") return undefined;
  return {
    index: body.readUInt32LE(4),
    address: `${local}/${body.readUInt8(1)}`,
    label,
    isPermanent: (flags & PERMANENT) !== 0,
    protocol,
    head: Buffer.from(body.subarray(0, IFADDRMSG_BYTES)),
    identity: Buffer.concat(identity),
  };
}

function attribute(type: number, value: Buffer): Buffer {
  const bytes = Buffer.alloc((4 + value.length + 3) & ~3);
  bytes.writeUInt16LE(4 + value.length, 0);
  bytes.writeUInt16LE(type, 2);
  value.copy(bytes, 4);
  return bytes;
}

function requestOf(type: number, flags: number, sequence: number, body: Buffer): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32LE(HEADER_BYTES + body.length, 0);
  header.writeUInt16LE(type, 4);
  header.writeUInt16LE(flags, 6);
  header.writeUInt32LE(sequence, 8);
  return Buffer.concat([header, body]);
}
