import { Buffer } from "node:buffer";
import type { NetlinkSocket } from "./netlink-socket.ts";
import { netlinkAddress } from "./netlink.ts";
import { messagesOf, type Message } from "./nft-messages.ts";

/** The result of a request: complete, no such object, or changed during the dump. */
export type Asked = "whole" | "absent" | "changed";

/** A request message, with the sequence number of its responses. */
export interface NetlinkRequest {
  readonly message: Buffer;
  readonly sequence: number;
  /** Whether many responses follow, up to a final one. */
  readonly isDump: boolean;
}

const MSG_TRUNC = 0x20;
const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const NLM_F_DUMP_INTR = 0x10;
const ENOENT = 2;
/** The kernel's datagrams have at most 32 KiB, unless a single message is longer. */
const BUFFER_BYTES = 256 * 1024;
const MAX_DATAGRAMS = 100_000;

/** Returns a buffer for the responses of successive requests. */
export function answerBuffer(): Buffer {
  return Buffer.alloc(BUFFER_BYTES);
}

/**
 * Sends a request and passes on each response, which is valid until the callback returns. The kernel has responded when the send
 * returns, so this never blocks. Returns undefined if the kernel refuses or does not respond.
 */
export function exchange(
  { fd, libc }: NetlinkSocket,
  buffer: Buffer,
  { message, sequence, isDump }: NetlinkRequest,
  onAnswer: (answer: Message) => void,
): Asked | undefined {
  const kernel = netlinkAddress(0);
  const sent = libc.sendto(fd, message, BigInt(message.length), 0, kernel, kernel.length);
  if (sent !== BigInt(message.length)) return undefined;
  let outcome: Asked = "whole";
  for (let count = 0; count < MAX_DATAGRAMS; count += 1) {
    const length = Number(libc.recv(fd, buffer, BigInt(buffer.length), MSG_TRUNC));
    if (length <= 0 || length > buffer.length) return undefined;
    for (const answer of messagesOf(buffer.subarray(0, length))) {
      if (answer.sequence !== sequence) continue;
      if ((answer.flags & NLM_F_DUMP_INTR) !== 0) outcome = "changed";
      if (answer.type === NLMSG_ERROR || answer.type === NLMSG_DONE) {
        const errno = answer.body.length < 4 ? 0 : -answer.body.readInt32LE(0);
        if (errno === 0) return outcome;
        return errno === ENOENT ? "absent" : undefined;
      }
      onAnswer(answer);
      if (!isDump) return outcome;
    }
  }
  return undefined;
}
