import { openNetlink } from "./netlink-socket.ts";
import { answerBuffer, exchange, type Asked } from "./netlink-exchange.ts";
import { answers, request, type Get, type Message } from "./nft-messages.ts";

/** A connection to the nf_tables of this network namespace. */
export interface NftSocket extends Disposable {
  /**
   * Sends a request and passes on each response, which is valid until the callback returns. `isDump` requests all objects of the
   * kind.
   * Returns undefined if nf_tables does not respond.
   */
  ask(get: Get, isDump: boolean, names: readonly string[], onAnswer: (answer: Message) => void): Asked | undefined;
}

const NETLINK_NETFILTER = 12;

/** Returns undefined if this Node cannot call the C library, or such sockets are unavailable. */
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
