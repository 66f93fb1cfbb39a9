import { openNetlink } from "./netlink-socket.ts";
import { answerBuffer, exchange, type Asked } from "./netlink-exchange.ts";
import { answers, request, type Get, type Message } from "./nft-messages.ts";

/** A conversation with nf_tables of this network namespace. */
export interface NftSocket extends Disposable {
  /**
   * Asks, and hands over each answer, which is good until the call returns. With `isDump` for all of the kind.
   * Undefined when nf_tables does not answer.
   */
  ask(get: Get, isDump: boolean, names: readonly string[], onAnswer: (answer: Message) => void): Asked | undefined;
}

const NETLINK_NETFILTER = 12;

/** Undefined where this Node cannot call the C library, or the machine has no such sockets. */
export function openNftSocket(): NftSocket | undefined {
  const socket = openNetlink(NETLINK_NETFILTER);
  if (socket === undefined) return undefined;
  const buffer = answerBuffer();
  let sequence = 0;
  return {
    ask(get, isDump, names, onAnswer) {
      sequence += 1;
      const asked = { message: request(get, { sequence, isDump, names }), sequence, isDump };
      return exchange(socket, buffer, asked, (answer) => {
        if (answers(answer, get)) onAnswer(answer);
      });
    },
    [Symbol.dispose]: () => socket[Symbol.dispose](),
  };
}
