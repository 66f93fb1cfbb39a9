// The clients, in a process of their own. Each line is a question `{do, port, …}`, answered with one line of JSON.
import { connect, Socket } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import type { LoadAnswers, LoadQuestion } from "./questions.ts";

interface To {
  readonly host?: string;
  readonly port: number;
}

const at = ({ host = "127.0.0.1", port }: To): { readonly host: string; readonly port: number } => ({ host, port });
const PIECE = Buffer.alloc(256 * 1024);
const MESSAGE = Buffer.alloc(64, "m");

/** Reads so many bytes over so many flows. */
function pull(to: To, flows: number, bytes: number): Promise<void> {
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
    socket.connect(at(to));
    socket.write(`${wanted}\n`);
    await ended(socket.resume());
    if (received !== wanted) throw new Error(`${received} bytes of ${wanted} arrived`);
  });
}

/** Writes so many bytes over so many flows. */
function push(to: To, flows: number, bytes: number): Promise<void> {
  return together(flows, async () => {
    let left = Math.ceil(bytes / flows);
    let answer = "";
    const socket = connect({ ...at(to), allowHalfOpen: true });
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
async function connects(to: To, count: number, atOnce: number): Promise<{ readonly seconds: number }> {
  let left = count;
  const startedAt = performance.now();
  await together(atOnce, async () => {
    while (left > 0) {
      left -= 1;
      let received = 0;
      const socket = connect({ ...at(to), noDelay: true, allowHalfOpen: true });
      socket.on("data", (chunk: Buffer) => (received += chunk.length));
      socket.end(MESSAGE);
      await ended(socket);
      if (received !== MESSAGE.length) throw new Error("a connection was lost");
    }
  });
  return { seconds: (performance.now() - startedAt) / 1000 };
}

/** One message after another over one connection; microseconds. */
async function roundTrips(to: To, count: number): Promise<{ readonly p50: number; readonly p99: number }> {
  const times = new Float64Array(count);
  const socket = connect({ ...at(to), noDelay: true });
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
function hold(to: To, count: number, keepOn: boolean): Promise<void> {
  return together(count, async () => {
    const socket = connect({ ...at(to), noDelay: true });
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

/** Asks for bytes and reads none of them. */
async function stall(to: To, bytes: number): Promise<void> {
  const socket = connect(at(to));
  held.push(socket.on("close", () => (cut += 1)).on("error", () => undefined));
  socket.pause();
  socket.write(`${bytes}\n`);
  await new Promise<void>((resolve) => void socket.once("connect", resolve));
}

/** Asks anew every so often, each time by a connection of its own, until one has answered. */
async function recovery(to: To, everyMs: number, withinMs: number): Promise<{ readonly ms: number }> {
  const from = performance.now();
  const tried: Socket[] = [];
  let isOver = false;
  const answered = new Promise<void>((resolve) => {
    const attempt = (): void => {
      if (isOver) return;
      const socket = connect({ ...at(to), noDelay: true });
      tried.push(socket.on("error", () => undefined).once("data", () => resolve()));
      socket.write(MESSAGE);
      setTimeout(attempt, everyMs);
    };
    attempt();
  });
  await Promise.race([answered, sleep(withinMs, undefined, { ref: false })]);
  const ms = performance.now() - from;
  isOver = true;
  for (const socket of tried) socket.destroy();
  if (ms >= withinMs) throw new Error(`nothing came back within ${withinMs} ms`);
  return { ms };
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
      await pull(question, question.flows, question.bytes);
      return {};
    case "push":
      await push(question, question.flows, question.bytes);
      return {};
    case "connects":
      return connects(question, question.count, question.atOnce);
    case "roundTrips":
      return roundTrips(question, question.count);
    case "hold":
      await hold(question, question.count, question.keepOn);
      return {};
    case "stall":
      await stall(question, question.bytes);
      return {};
    case "recovery":
      return recovery(question, question.everyMs, question.withinMs);
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
