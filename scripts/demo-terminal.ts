// A terminal in a container through the control plane's HTTP API: what is typed is standard input, what the terminal shows is printed.
//   node scripts/demo-terminal.ts <control plane> <node> <container>      the key is in the environment: HOLDFAST_KEY
import { buffer } from "node:stream/consumers";

const [url = "", node = "", container = ""] = process.argv.slice(2);
const headers = { authorization: process.env["HOLDFAST_KEY"] ?? "" };
const address = `${url.replace(/^http/, "ws")}/node/${node}/trigger/container-exec?container=${container}&cols=80&rows=24`;
const typed = await buffer(process.stdin);
const socket = new WebSocket(address, { headers });
socket.binaryType = "arraybuffer";
socket.addEventListener("open", () => socket.send(typed));
socket.addEventListener("message", ({ data }) => {
  if (data instanceof ArrayBuffer) process.stdout.write(Buffer.from(data));
  else console.log(`\n${String(data)}`);
});
socket.addEventListener("error", () => {
  console.error("there is no terminal: the control plane refuses it, or is not there");
  process.exitCode = 1;
});
