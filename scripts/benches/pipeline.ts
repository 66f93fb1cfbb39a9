import type { Bench } from "./bench.ts";
import { median, type Figure } from "./figures.ts";
import { mixedMessages, oneOfEach } from "./mix.ts";
import { activityOf } from "./processes.ts";
import { startHelper } from "./programs.ts";
import { RawWebSocket, textFrame } from "./raw-websocket.ts";

const ROUNDS = 9;
const WARM_UP = 3;
const MESSAGES = 16_000;
/** Mixes on their way at a time. */
const AHEAD = 16;

/** Messages through size, UTF-8, depth, schema and dispatch, against a server that sends the same bytes back. */
export const pipeline: Bench = {
  area: "pipeline",
  about: "messages a second through the session's checks, against a bare ws echo",
  async run() {
    const ours = await startServer("pipeline");
    const echo = await startServer("echo");
    const mixed = await compare("the mix of a busy session", mixedMessages(), ours, echo);
    const texts = oneOfEach().map(({ text }) => text);
    const each = await compare("one of each", texts, ours, echo);
    await Promise.all([ours.end(), echo.end()]);
    return [{ ...mixed, bar: { of: "ratio", least: 0.5 } }, each];
  },
};

interface Server {
  readonly pid: number;
  readonly socket: RawWebSocket;
  end(): Promise<void>;
}

async function startServer(mode: "pipeline" | "echo"): Promise<Server> {
  const helper = startHelper("pipeline-server.ts", [mode]);
  const socket = await RawWebSocket.open(Number(await helper.ask("port")));
  return {
    pid: helper.pid,
    socket,
    end: () => {
      socket.close();
      return helper.end();
    },
  };
}

async function compare(name: string, messages: readonly string[], ours: Server, echo: Server): Promise<Figure> {
  const frames = Buffer.concat(messages.map(textFrame));
  const requests = messages.filter((text) => "id" in (JSON.parse(text) as object)).length;
  const times = Math.round(MESSAGES / messages.length);
  const perSecond = async (server: Server, answers: number): Promise<number> => {
    // By the processor time of the server, which is what bounds it, so that a busy neighbour hardly shows.
    const before = activityOf(server.pid).cpuMs;
    await server.socket.pump(frames, times, answers, AHEAD);
    return (1000 * times * messages.length) / (activityOf(server.pid).cpuMs - before);
  };
  const [here, there]: [number[], number[]] = [[], []];
  for (let round = 0; round < WARM_UP + ROUNDS; round += 1) {
    const rates = [await perSecond(ours, requests), await perSecond(echo, messages.length)] as const;
    if (round < WARM_UP) continue;
    here.push(rates[0]);
    there.push(rates[1]);
  }
  return {
    what: `${name}, ${Math.round(frames.length / messages.length)} bytes a message`,
    value: median(here),
    unit: "/CPU s",
    peer: { name: "a bare ws echo", value: median(there) },
  };
}
