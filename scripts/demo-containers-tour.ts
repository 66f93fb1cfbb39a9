// What the demo of containers shows: commands with real identifiers filled in, and what each must answer.
import type { ContainerStage } from "../test/support/containers/container-stage.ts";
import { idOf } from "../test/support/containers/container-stage.ts";
import type { Stop } from "./demo-tour.ts";

const HOLDFAST = "scripts/holdfast";
const NAME = "web";

/** The stops in order; `dir` as it is to be written. */
export function containersTour(stage: ContainerStage, dir: string): readonly Stop[] {
  const { url, uid, namespace, registryHost } = stage;
  const auth = `-H "Authorization: $(cat ${dir}/controller/admin.key)"`;
  const json = `-H 'content-type: application/json'`;
  const container = `${url}/v2/node/${uid}/exec/container`;
  const run = `--run ${dir}/run`;
  const engine = `curl -sg --unix-socket ${dir}/e/docker.sock 'http://engine/containers/json?all=1&filters={"name":["${idOf(NAME)}"]}'`;
  const look = `${engine} | grep -o '"Image":"[^"]*"\\|"Status":"[^"]*"'`;
  const record = (tag: string, more = ""): string =>
    `'{"name":"${NAME}","execType":"service","image":{"repository":"${namespace}/shop/web","tag":"${tag}"},"stopTime":5,"logging":{"maxFileSize":1,"numFiles":2}${more}}'`;
  const put = (tag: string, more?: string): string =>
    `curl -s ${auth} ${json} -X PUT ${container}/${idOf(NAME)} -d ${record(tag, more)}`;
  const runs = (tag: string): RegExp => new RegExp(`^"Image":"[^"]*/shop/web:${tag}"\\n"Status":"Up [^"]*"\\n$`);
  return [
    {
      title: "the registry lets nobody in without a token",
      command: `curl -s -o /dev/null -w '%{http_code}\\n' http://${registryHost}/v2/`,
      expect: /401/,
    },
    {
      title: "the control plane gives the tokens, and lists what is in it",
      command: `curl -s ${auth} ${url}/repositories && curl -s ${auth} ${url}/repositories/${encodeURIComponent(`${namespace}/shop/web`)}`,
      expect: /shop\/web[^]*"name":"1"/,
    },
    {
      title: "have the node run a container of it",
      command: `curl -s ${auth} ${json} -X POST ${container} -d ${record("1", `,"id":"${idOf(NAME)}"`)}`,
      expect: /"name":"web"/,
    },
    {
      title: "the node has asked for a credential, pulled the image and started it: the engine's own list",
      command: look,
      expect: runs("1"),
      isEventual: true,
    },
    {
      title: "change to an image that nobody has: the node says why it waits; exit status 5",
      command: `${put("2")} > ${dir}/answer; until ${HOLDFAST} why ${run} | grep 'manifest unknown'; do sleep 0.5; done`,
      expect: /web: .*shop\/web:2.*manifest unknown/,
    },
    { title: "and the old container runs on, it was never stopped", command: look, expect: runs("1") },
    {
      title: "now an image that is there: it is pulled first, and only then the old container makes room",
      command: `${put("3")} > ${dir}/answer; until ${look} | grep 'web:3'; do sleep 0.5; done`,
      expect: /web:3/,
    },
    { title: "one container, of the new image", command: look, expect: runs("3"), isEventual: true, limitMs: 30_000 },
    {
      title:
        "kill -9 the agent in the middle of another replacement, when the new container is made and the old one ends",
      command: [
        `${put("1")} > ${dir}/answer`,
        `until [ $(${engine} | grep -o '"Image":' | wc -l) = 2 ]; do sleep 0.1; done`,
        `kill -9 $(cat ${dir}/run/agent.pid); echo "killed; there are:"; ${look}`,
      ].join("; "),
      expect: /killed[^]*web:[13]"[^]*web:[13]"/,
    },
    {
      title: "the next agent, which the demo starts, brings it to its end",
      command: look,
      expect: runs("1"),
      isEventual: true,
      limitMs: 60_000,
    },
    {
      title: "a terminal in the container, through the control plane's HTTP API",
      command: `printf 'echo $((40 + 2)) in $(hostname); exit 7\\n' | HOLDFAST_KEY=$(cat ${dir}/controller/admin.key) node scripts/demo-terminal.ts ${url} ${uid} ${NAME}`,
      expect: /42 in web[^]*"code":7/,
      isEventual: true,
    },
    {
      title: "the same from the node's own command line",
      command: `${HOLDFAST} containers exec ${NAME} ${run} -- sh -c 'echo $((6 * 7)) on $(hostname)'`,
      expect: /42 on web/,
    },
    { title: "what it writes", command: `${HOLDFAST} containers logs ${NAME} ${run}`, expect: /web is up/ },
    {
      title: "what only the owner of the machine may allow is refused, with the reason",
      command: `${put("1", ',"privileged":true')} > ${dir}/answer; until ${HOLDFAST} why ${run} | grep 'local policy'; do sleep 0.5; done`,
      expect: /privileged: forbidden by local policy/,
    },
    { title: "what runs goes on", command: look, expect: runs("1") },
    {
      title: "take it away",
      command: `curl -s ${auth} -X DELETE ${container}/${idOf(NAME)} > ${dir}/answer; until [ "$(${engine})" = '[]' ]; do sleep 0.2; done; ${engine}`,
      expect: /^\[\]/,
    },
  ];
}
