import { WebSocket } from "ws";
import { waitFor } from "../wait-for.ts";

/** A client of a terminal through the HTTP API. */
export class TerminalClient {
  readonly socket: WebSocket;
  readonly reported: { type: string; code?: number | string | null; message?: string }[] = [];
  text = "";
  bytes = 0;
  closed: { readonly code: number; readonly reason: string } | undefined;
  /** HTTP status and body of a refusal. */
  refused: { readonly status: number; readonly body: string } | undefined;
  isOpen = false;

  constructor(origin: string, path: string, key: string, keepsText = true) {
    this.socket = new WebSocket(`${origin.replace(/^http/, "ws")}${path}`, { headers: { authorization: key } });
    this.socket
      .on("open", () => {
        this.isOpen = true;
      })
      .on("message", (data: Buffer, isBinary) => {
        if (!isBinary) return void this.reported.push(JSON.parse(data.toString()) as { type: string });
        this.bytes += data.length;
        if (keepsText) this.text += data.toString();
      })
      .on("unexpected-response", (_, response) => {
        let body = "";
        response.on("data", (chunk: Buffer) => (body += chunk.toString()));
        response.on("end", () => (this.refused = { status: response.statusCode ?? 0, body }));
      })
      .on("close", (code, reason) => (this.closed = { code, reason: reason.toString() }))
      .on("error", () => undefined);
  }

  async opened(): Promise<this> {
    await waitFor("the terminal to open", () => {
      if (this.refused !== undefined || this.closed !== undefined) return true;
      return this.isOpen;
    });
    if (!this.isOpen) throw new Error(`refused: ${JSON.stringify(this.refused ?? this.closed)}`);
    return this;
  }

  refusal(): Promise<{ readonly status: number; readonly body: string }> {
    return waitFor("the refusal", () => this.refused);
  }

  type(text: string): void {
    this.socket.send(Buffer.from(text));
  }

  say(command: object): void {
    this.socket.send(JSON.stringify(command));
  }

  seen(text: string): Promise<unknown> {
    return waitFor(`the terminal to show ${JSON.stringify(text)}`, () => this.text.includes(text)).catch(
      (error: unknown) => {
        throw new Error(`it shows ${JSON.stringify(this.text)}`, { cause: error });
      },
    );
  }

  end(): Promise<{ readonly code: number; readonly reason: string }> {
    return waitFor("the terminal to close", () => this.closed);
  }
}
