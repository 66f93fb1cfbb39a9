/** Reads what passes through a flow, and edits it, for protocols that name further connections. */
export interface Interpreter {
  /** What goes on of the bytes that a client has sent; what it keeps of the chunk is a copy. */
  request(chunk: Uint8Array): Uint8Array;
  /** Likewise for the bytes that the service has sent. */
  reply(chunk: Uint8Array): Uint8Array;
  /** Whether the flow is in use although nothing moves in it. */
  readonly isBusy: boolean;
}

/** An interpreter between a socket and a stream. */
export interface Editing {
  /** What comes from the socket, and what comes by the stream. */
  readonly edits: Readonly<Record<"up" | "down", (chunk: Uint8Array) => Uint8Array>>;
  readonly isBusy: () => boolean;
}

/** Puts an interpreter, where there is one, between a stream and the socket of either the client or the service. */
export function editing(interpreter: Interpreter | undefined, socketOf: "client" | "service"): Partial<Editing> {
  if (interpreter === undefined) return {};
  const request = (chunk: Uint8Array): Uint8Array => interpreter.request(chunk);
  const reply = (chunk: Uint8Array): Uint8Array => interpreter.reply(chunk);
  const edits = socketOf === "client" ? { up: request, down: reply } : { up: reply, down: request };
  return { edits, isBusy: () => interpreter.isBusy };
}
