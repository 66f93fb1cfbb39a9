/** Reads and edits the bytes of a flow, for protocols that announce further connections. */
export interface Interpreter {
  /** Returns the bytes to pass on for bytes from the client; keeps only copies of the chunk. */
  request(chunk: Uint8Array): Uint8Array;
  /** Returns the bytes to pass on for bytes from the service. */
  reply(chunk: Uint8Array): Uint8Array;
  /** Reports whether the flow is in use although nothing moves. */
  readonly isBusy: boolean;
}

/** An interpreter between a socket and a stream. */
export interface Editing {
  /** Edits bytes from the socket (`up`) and from the stream (`down`). */
  readonly edits: Readonly<Record<"up" | "down", (chunk: Uint8Array) => Uint8Array>>;
  readonly isBusy: () => boolean;
}

/** Applies an interpreter, if any, between a stream and the socket of the client or of the service. */
export function editing(interpreter: Interpreter | undefined, socketOf: "client" | "service"): Partial<Editing> {
  if (interpreter === undefined) return {};
  const request = (chunk: Uint8Array): Uint8Array => interpreter.request(chunk);
  const reply = (chunk: Uint8Array): Uint8Array => interpreter.reply(chunk);
  const edits = socketOf === "client" ? { up: request, down: reply } : { up: reply, down: request };
  return { edits, isBusy: () => interpreter.isBusy };
}
