import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** A client that costs next to nothing: frames are made once, and of what comes back only their ends are looked for. */
export class RawWebSocket {
  readonly #socket: Socket;
  #rest: Buffer = Buffer.alloc(0);
  #onFrame = (): void => undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (chunk: Buffer) => this.#take(chunk));
  }

  static async open(port: number): Promise<RawWebSocket> {
    const socket = connect({ host: "127.0.0.1", port, noDelay: true });
    const key = randomBytes(16).toString("base64");
    socket.write(
      `GET / HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
        `Sec-WebSocket-Key: ${key}\r\nSec-WebSocket-Version: 13\r\n\r\n`,
    );
    const [answer] = (await once(socket, "data")) as [Buffer];
    if (!answer.toString("latin1").startsWith("HTTP/1.1 101")) throw new Error("not upgraded");
    return new RawWebSocket(socket);
  }

  /** Writes `frames` so many times, at most `ahead` times before their `answers` came; resolves when all have come. */
  pump(frames: Buffer, times: number, answers: number, ahead: number): Promise<void> {
    return new Promise((resolve) => {
      let sent = 0;
      let received = 0;
      const send = (): void => {
        for (; sent < times && sent - Math.floor(received / answers) < ahead; sent += 1) this.#socket.write(frames);
      };
      this.#onFrame = () => {
        received += 1;
        if (received === times * answers) resolve();
        else if (received % answers === 0) send();
      };
      send();
      // Never asleep, lest waking it up be counted as work of the server.
      const spin = (): void => {
        if (received < times * answers) setImmediate(spin);
      };
      spin();
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    let data = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    for (let end = frameEnd(data); end !== undefined; end = frameEnd(data)) {
      data = data.subarray(end);
      this.#onFrame();
    }
    this.#rest = data;
  }
}

/** One masked text frame (RFC 6455 §5.2). */
export function textFrame(text: string): Buffer {
  const payload = Buffer.from(text);
  const { length } = payload;
  const size = length < 126 ? [0x80 | length] : [0x80 | 126, length >> 8, length & 0xff];
  if (length > 0xffff) throw new Error("too long for this client");
  const mask = randomBytes(4);
  for (let i = 0; i < length; i += 1) payload.writeUInt8(payload.readUInt8(i) ^ mask.readUInt8(i % 4), i);
  return Buffer.concat([Buffer.from([0x81, ...size]), mask, payload]);
}

/** Returns the offset at which the first unmasked frame ends; undefined while it is incomplete. */
function frameEnd(data: Buffer): number | undefined {
  if (data.length < 2) return undefined;
  const short = data.readUInt8(1);
  if (short < 126) return data.length < 2 + short ? undefined : 2 + short;
  if (short !== 126) throw new Error("longer than anything that was sent");
  if (data.length < 4) return undefined;
  const end = 4 + data.readUInt16BE(2);
  return data.length < end ? undefined : end;
}
