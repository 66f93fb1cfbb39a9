// The servers behind what is measured, in a process of their own: `source` sends as many bytes as its first line says, `sink` reads
// to the end and says "ok", `echo` sends back what it is sent. Its argument is the address to listen on.
import { createServer, Socket, type BoundSocket, type Server } from "node:net";
import { createInterface } from "node:readline";

const PIECE = Buffer.alloc(256 * 1024);
const [HOST = "127.0.0.1"] = process.argv.slice(2);

function listen(onConnection: (socket: Socket) => void): Server {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    onConnection(socket.on("error", () => undefined));
  });
  return server.listen({ host: HOST, port: 0, backlog: 4096 });
}

function source(socket: Socket): void {
  socket.once("data", (line: Buffer) => {
    let left = Number(line.toString());
    const send = (): void => {
      while (left > 0) {
        const piece = left < PIECE.length ? PIECE.subarray(0, left) : PIECE;
        left -= piece.length;
        if (!socket.write(piece)) return;
      }
      socket.end();
    };
    socket.on("drain", send);
    send();
  });
}

function echo(socket: Socket): void {
  socket.on("data", (chunk: Buffer) => void socket.write(chunk));
  socket.on("end", () => socket.end());
}

/** Reads into one buffer for everybody, which only a socket that one makes oneself can do, so that it costs little. */
function sink(accepted: Socket): void {
  const handle = Reflect.get(accepted, "_handle") as BoundSocket;
  Reflect.set(accepted, "_handle", null);
  const socket = new Socket({ handle, allowHalfOpen: true, onread: { buffer: PIECE, callback: () => true } });
  socket.on("error", () => undefined).on("end", () => socket.end("ok"));
  socket.resume();
}

const servers = {
  source: listen(source),
  sink: createServer({ allowHalfOpen: true, pauseOnConnect: true }, sink).listen({
    host: HOST,
    port: 0,
    backlog: 4096,
  }),
  echo: listen(echo),
};
createInterface({ input: process.stdin }).on("line", () => {
  const ports = Object.entries(servers).map(([name, server]) => {
    const address = server.address();
    return [name, typeof address === "object" && address !== null ? address.port : 0];
  });
  console.log(JSON.stringify(Object.fromEntries(ports)));
});
