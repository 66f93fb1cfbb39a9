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

/** Messages through size, UTF-8, depth, schema and dispatch, against a server that only parses them and gives the same answers. */
export const pipeline: Bench = {
  area: "pipeline",
  about: "messages a second through the session's checks, against bare ws and JSON",
  async run() {
    const ours = await startServer("pipeline");
    const bare = await startServer("bare");
    const mixed = await compare("the mix of a busy session", mixedMessages(), ours, bare);
    const texts = oneOfEach().map(({ text }) => text);
    const each = await compare("one of each", texts, ours, bare);
    await Promise.all([ours.end(), bare.end()]);
    return [{ ...mixed, bar: { of: "ratio", least: 0.4 } }, each];
  },
};

interface Server {
  readonly pid: number;
  readonly socket: RawWebSocket;
  end(): Promise<void>;
}

async function startServer(mode: "pipeline" | "bare"): Promise<Server> {
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

async function compare(name: string, messages: readonly string[], ours: Server, bare: Server): Promise<Figure> {
  const frames = Buffer.concat(messages.map(textFrame));
  const requests = messages.filter((text) => "id" in (JSON.parse(text) as object)).length;
  const times = Math.round(MESSAGES / messages.length);
  const perSecond = async (server: Server): Promise<number> => {
    // By the processor time of the server, which is what bounds it, so that a busy neighbour hardly shows.
    const before = activityOf(server.pid).cpuMs;
    await server.socket.pump(frames, times, requests, AHEAD);
    return (1000 * times * messages.length) / (activityOf(server.pid).cpuMs - before);
  };
  const [here, there]: [number[], number[]] = [[], []];
  for (let round = 0; round < WARM_UP + ROUNDS; round += 1) {
    const rates = [await perSecond(ours), await perSecond(bare)] as const;
    if (round < WARM_UP) continue;
    here.push(rates[0]);
    there.push(rates[1]);
  }
  return {
    what: `${name}, ${Math.round(frames.length / messages.length)} bytes a message`,
    value: median(here),
    unit: "/CPU s",
    peer: { name: "bare ws and JSON", value: median(there) },
    ratio: median(here.map((rate, round) => rate / (there[round] ?? Number.NaN))),
  };
}
