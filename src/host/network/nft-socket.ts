import { Buffer } from "node:buffer";
import { openNetlink } from "../netlink-socket.ts";
import { netlinkAddress } from "../netlink.ts";
import { answers, messagesOf, request, type Get, type Message } from "./nft-messages.ts";

/** What asking came to: answered whole, there is no such thing, or something changed in the meantime. */
export type Asked = "whole" | "absent" | "changed";

/** A conversation with nf_tables of this network namespace. */
export interface NftSocket extends Disposable {
  /**
   * Asks, and hands over each answer, which is good until the call returns. With `isDump` for all of the kind.
   * Undefined when nf_tables does not answer.
   */
  ask(get: Get, isDump: boolean, names: readonly string[], onAnswer: (answer: Message) => void): Asked | undefined;
}

const NETLINK_NETFILTER = 12;
const MSG_TRUNC = 0x20;
const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const NLM_F_DUMP_INTR = 0x10;
const ENOENT = 2;
/** The kernel answers in datagrams of at most 32 KiB, unless one message alone is longer. */
const BUFFER_BYTES = 256 * 1024;
const MAX_DATAGRAMS = 100_000;

/** Undefined where this Node cannot call the C library, or the machine has no such sockets. */
export function openNftSocket(): NftSocket | undefined {
  // What is asked for is there when the request returns: it never has to be waited for.
  const socket = openNetlink(NETLINK_NETFILTER);
  if (socket === undefined) return undefined;
  const { fd, libc } = socket;
  const buffer = Buffer.alloc(BUFFER_BYTES);
  const kernel = netlinkAddress(0);
  let sequence = 0;
  return {
    ask(get, isDump, names, onAnswer) {
      sequence += 1;
      const asked = request(get, { sequence, isDump, names });
      const sent = libc.sendto(fd, asked, BigInt(asked.length), 0, kernel, kernel.length);
      if (sent !== BigInt(asked.length)) return undefined;
      let outcome: Asked = "whole";
      for (let count = 0; count < MAX_DATAGRAMS; count += 1) {
        const length = Number(libc.recv(fd, buffer, BigInt(buffer.length), MSG_TRUNC));
        if (length <= 0 || length > buffer.length) return undefined;
        for (const message of messagesOf(buffer.subarray(0, length))) {
          if (message.sequence !== sequence) continue;
          if ((message.flags & NLM_F_DUMP_INTR) !== 0) outcome = "changed";
          if (message.type === NLMSG_ERROR || message.type === NLMSG_DONE) {
            const errno = message.body.length < 4 ? 0 : -message.body.readInt32LE(0);
            if (errno === 0) return outcome;
            return errno === ENOENT ? "absent" : undefined;
          }
          if (answers(message, get)) onAnswer(message);
          if (!isDump) return outcome;
        }
      }
      return undefined;
    },
    [Symbol.dispose]: () => socket[Symbol.dispose](),
  };
}
