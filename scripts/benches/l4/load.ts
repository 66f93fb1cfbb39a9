// The clients, in a process of their own. Each line is a question `{do, port, …}`, answered with one line of JSON.
import { connect, Socket } from "node:net";
import { createInterface } from "node:readline";
import type { LoadAnswers, LoadQuestion } from "./questions.ts";

const HOST = "127.0.0.1";
const PIECE = Buffer.alloc(256 * 1024);
const MESSAGE = Buffer.alloc(64, "m");

/** Reads so many bytes over so many flows. */
function pull(port: number, flows: number, bytes: number): Promise<void> {
  return together(flows, async () => {
    const wanted = Math.ceil(bytes / flows);
    let received = 0;
    const socket = new Socket({
      onread: {
        buffer: PIECE,
        callback: (size) => {
          received += size;
          return true;
        },
      },
    });
    socket.connect({ host: HOST, port });
    socket.write(`${wanted}\n`);
    await ended(socket.resume());
    if (received !== wanted) throw new Error(`${received} bytes of ${wanted} arrived`);
  });
}

/** Writes so many bytes over so many flows. */
function push(port: number, flows: number, bytes: number): Promise<void> {
  return together(flows, async () => {
    let left = Math.ceil(bytes / flows);
    let answer = "";
    const socket = connect({ host: HOST, port, allowHalfOpen: true });
    const send = (): void => {
      while (left > 0) {
        const piece = left < PIECE.length ? PIECE.subarray(0, left) : PIECE;
        left -= piece.length;
        if (!socket.write(piece)) return;
      }
      socket.end();
    };
    socket.on("connect", send).on("drain", send);
    socket.on("data", (chunk: Buffer) => (answer += chunk.toString()));
    await ended(socket);
    if (answer !== "ok") throw new Error("not all of it arrived");
  });
}

/** Connects so often, a message there and back each time, so many at once. */
async function connects(port: number, count: number, atOnce: number): Promise<{ readonly seconds: number }> {
  let left = count;
  const startedAt = performance.now();
  await together(atOnce, async () => {
    while (left > 0) {
      left -= 1;
      let received = 0;
      const socket = connect({ host: HOST, port, noDelay: true, allowHalfOpen: true });
      socket.on("data", (chunk: Buffer) => (received += chunk.length));
      socket.end(MESSAGE);
      await ended(socket);
      if (received !== MESSAGE.length) throw new Error("a connection was lost");
    }
  });
  return { seconds: (performance.now() - startedAt) / 1000 };
}

/** One message after another over one connection; microseconds. */
async function roundTrips(port: number, count: number): Promise<{ readonly p50: number; readonly p99: number }> {
  const times = new Float64Array(count);
  const socket = connect({ host: HOST, port, noDelay: true });
  let startedAt = 0;
  let received = 0;
  let done = 0;
  const send = (): void => {
    startedAt = performance.now();
    received = 0;
    socket.write(MESSAGE);
  };
  socket.on("connect", send).on("data", (chunk: Buffer) => {
    received += chunk.length;
    if (received < MESSAGE.length) return;
    times[done] = (performance.now() - startedAt) * 1000;
    done += 1;
    if (done < count) send();
    else socket.end();
  });
  await ended(socket);
  times.sort();
  return { p50: times[Math.floor(count * 0.5)] ?? Number.NaN, p99: times[Math.floor(count * 0.99)] ?? Number.NaN };
}

const held: Socket[] = [];
let cut = 0;
let exchanged = 0;

/** Opens connections that exchange one message and then stay; with `keepOn` they go on exchanging. */
function hold(port: number, count: number, keepOn: boolean): Promise<void> {
  return together(count, async () => {
    const socket = connect({ host: HOST, port, noDelay: true });
    held.push(socket);
    socket.on("close", () => (cut += 1)).on("error", () => undefined);
    socket.write(MESSAGE);
    await new Promise<void>((resolve) => {
      socket.on("data", () => {
        exchanged += 1;
        resolve();
        if (keepOn) setTimeout(() => socket.write(MESSAGE), 5);
      });
    });
  });
}

function release(): { readonly cut: number; readonly exchanged: number } {
  const result = { cut, exchanged };
  for (const socket of held.splice(0)) socket.removeAllListeners("close").destroy();
  cut = 0;
  exchanged = 0;
  return result;
}

function ended(socket: Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    let error: Error | undefined;
    socket.on("error", (thrown) => (error = thrown));
    socket.on("close", () => {
      if (error === undefined) resolve();
      else reject(error);
    });
  });
}

async function together(count: number, work: () => Promise<void>): Promise<void> {
  await Promise.all(Array.from({ length: count }, work));
}

async function answer(question: LoadQuestion): Promise<LoadAnswers[LoadQuestion["do"]]> {
  switch (question.do) {
    case "pull":
      await pull(question.port, question.flows, question.bytes);
      return {};
    case "push":
      await push(question.port, question.flows, question.bytes);
      return {};
    case "connects":
      return connects(question.port, question.count, question.atOnce);
    case "roundTrips":
      return roundTrips(question.port, question.count);
    case "hold":
      await hold(question.port, question.count, question.keepOn);
      return {};
    case "release":
      return release();
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  answer(JSON.parse(line) as LoadQuestion).then(
    (result) => console.log(JSON.stringify(result)),
    (error: unknown) => console.log(JSON.stringify({ error: String(error) })),
  );
});
