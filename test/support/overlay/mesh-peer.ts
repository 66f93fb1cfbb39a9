// Runs on a host of a lab, as a server or as a client: mesh-peer.ts echo PORT, or talk, ask or knock HOST PORT.
import { createSocket } from "node:dgram";
import { connect, createServer } from "node:net";
import { connect as tlsConnect } from "node:tls";

const [role, ...given] = process.argv.slice(2);
const say = (line: string): void => void process.stderr.write(`${line}\n`);

if (role === "echo") {
  const port = Number(given[0]);
  const datagrams = createSocket("udp4");
  datagrams.on("message", (text, { port, address }) => datagrams.send(text, port, address));
  datagrams.bind(port, "0.0.0.0", () => {
    createServer({ allowHalfOpen: true }, (socket) => {
      socket.on("error", ({ message }) => say(message)).pipe(socket);
    }).listen(port, "0.0.0.0", () => say("ready"));
  });
} else {
  const [host = "", port = "", alpn = ""] = given;
  if (role === "knock") {
    const protocols = alpn === "" ? {} : { ALPNProtocols: [alpn] };
    const socket = tlsConnect({ host, port: Number(port), rejectUnauthorized: false, ...protocols });
    socket.once("secureConnect", () => socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    socket.on("error", ({ message }) => say(message)).pipe(process.stdout);
  } else if (role === "talk") {
    const socket = connect({ host, port: Number(port), allowHalfOpen: true });
    socket.once("connect", () => say("connected"));
    socket.on("error", (error: NodeJS.ErrnoException) => say(`fate ${error.code ?? error.message}`));
    socket.on("end", () => say("fate end"));
    socket.pipe(process.stdout);
    process.stdin.pipe(socket);
  } else {
    const socket = createSocket("udp4").on("message", (text) => process.stdout.write(text));
    process.stdin.on("data", (text) => socket.send(text, Number(port), host));
    process.stdin.on("end", () => socket.close());
  }
}
