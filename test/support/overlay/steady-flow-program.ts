// Keeps one TCP flow busy: sends a number some twenty times a second and waits for its echo. Prints the count of echoes, one in each line, and
// the reason, with status 1, when the flow breaks. Arguments: host and port. With a port only it is the echo server.
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";

const [host = "", port] = process.argv.slice(2);

if (port === undefined) {
  createServer((socket) => void socket.on("error", () => undefined).pipe(socket)).listen(Number(host), () =>
    console.log("listening"),
  );
} else {
  keepGoing(host, Number(port));
}

function keepGoing(host: string, port: number): void {
  const socket = connect({ host, port, noDelay: true }).setEncoding("utf8");
  const fail = (why: string): void => {
    console.log(`broken: ${why}`);
    process.exit(1);
  };
  let sent = 0;
  const send = (): void => void socket.write(`${(sent += 1)}\n`);
  socket.once("connect", send).once("error", (error) => fail(error.message));
  socket.once("close", () => fail("it was closed"));
  createInterface(socket).on("line", (line) => {
    if (line !== String(sent)) fail(`${line} came back for ${sent}`);
    console.log(line);
    setTimeout(send, 50);
  });
}
