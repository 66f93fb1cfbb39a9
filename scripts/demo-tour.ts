// What the demo shows: commands with real identifiers filled in, and what each must answer.
import { spawnSync } from "node:child_process";

export interface Stop {
  readonly title: string;
  readonly command: string;
  /** Pattern that the answer must match. */
  readonly expect: RegExp;
  /** The node needs a moment: asked again until the answer is there. */
  readonly isEventual?: true;
  /** For how long it is asked again. */
  readonly limitMs?: number;
}

export interface Stage {
  /** The folder of everything the demo makes. */
  readonly dir: string;
  /** The control plane, and the port it serves. */
  readonly url: string;
  readonly port: number;
  readonly uid: string;
  /** Ports of the demo's web server and of the connector that leads to it. */
  readonly webPort: number;
  readonly connectorPort: number;
}

const HOLDFAST = "scripts/holdfast";

/** The stops in order. */
export function tourOf(stage: Stage): readonly Stop[] {
  return [...controlPlane(stage), ...overlay(stage), ...node(stage)];
}

const authOf = ({ dir }: Stage): string => `-H "Authorization: $(cat ${dir}/controller/admin.key)"`;
const json = `-H 'content-type: application/json'`;

function controlPlane(stage: Stage): readonly Stop[] {
  const { url, port, uid } = stage;
  const auth = authOf(stage);
  const hasPing = spawnSync("sh", ["-c", "command -v ping"]).status === 0;
  return [
    {
      title: "every node, as the platform's API lists it",
      command: `curl -s ${auth} ${url}/node`,
      expect: /"online":true/,
    },
    {
      title: "just the fields you ask for",
      command: `curl -sg ${auth} '${url}/node?projection[]=name&projection[0][0]=shadow&projection[0][1]=reported&projection[0][2]=memory'`,
      expect: /"shadow":\{"reported":\{"memory":\d+\}\}/,
    },
    {
      title: "run a diagnosis on the node and wait for its answer",
      command: `curl -s ${auth} ${json} -X POST '${url}/node/${uid}/trigger/tg-nc?wait=1' -d '{"host":"127.0.0.1","port":${port}}'`,
      expect: /"exitCode":"0"/,
    },
    hasPing
      ? {
          title: "ping from the node",
          command: `curl -s ${auth} ${json} -X POST '${url}/node/${uid}/trigger/tg-ping?wait=1' -d '{"host":"127.0.0.1"}'`,
          expect: /4 received/,
        }
      : {
          title: "ping from the node (ping is not installed on this machine, and the node says so)",
          command: `curl -s ${auth} ${json} -X POST '${url}/node/${uid}/trigger/tg-ping?wait=1' -d '{"host":"127.0.0.1"}'`,
          expect: /"tool-missing"/,
        },
    {
      title: "tag it; the node knows within a moment",
      command: `curl -s ${auth} ${json} -X PUT ${url}/node/${uid}/tag/site -d '{"value":"here"}'`,
      expect: /"site":"here"/,
    },
    { title: "what has happened", command: `curl -s ${auth} '${url}/v2/event?limit=5'`, expect: /"Node Connect"/ },
    { title: "nothing without a key", command: `curl -s ${url}/node`, expect: /unauthori[sz]ed|Authorization/i },
  ];
}

function overlay(stage: Stage): readonly Stop[] {
  const { dir, url, port, uid, webPort, connectorPort } = stage;
  const auth = authOf(stage);
  const run = `--run ${dir}/run`;
  const config = `${url}/v2/node/${uid}/config`;
  const through = `http://127.0.0.1:${connectorPort}`;
  const connector = (listenPort: number): string =>
    `'{"node":"local","service":"demo-web","protocol":"tcp","localIp":"127.0.0.1","port":${listenPort}}'`;
  const lostId = `$(grep -o '"id":"[^"]*"' ${dir}/broken | cut -d '"' -f 4)`;
  return [
    {
      title: "make a service of the web server that the demo runs",
      command: `curl -s ${auth} ${json} -X POST ${config}/services -d '{"name":"demo-web","protocol":"tcp","host":"127.0.0.1","port":${webPort}}'`,
      expect: /"name":"demo-web".*"id":"/,
    },
    {
      title: "and a connector that leads to it",
      command: `curl -s ${auth} ${json} -X POST ${config}/connectors -d ${connector(connectorPort)}`,
      expect: /"service":"demo-web".*"id":"/,
    },
    {
      title: "fetch a page through the connector",
      command: `curl -s --retry 20 --retry-connrefused --retry-delay 1 ${through}/`,
      expect: /Hello from behind a connector/,
    },
    {
      title: "what the connector has counted (add --watch to see it move)",
      command: `${HOLDFAST} connectors ${run}`,
      expect: /listening tcp 127\.0\.0\.1:\d+ →\s+local\/demo-web\s+flows \d+ now, [1-9]\d* in all; [1-9]/,
    },
    {
      title: "what connectors can reach from here",
      command: `${HOLDFAST} services ${run}`,
      expect: /demo-web offered tcp 127\.0\.0\.1/,
    },
    {
      title: "break it: a second connector on the same port is refused by the API",
      command: `curl -s ${auth} ${json} -X POST ${config}/connectors -d ${connector(connectorPort)}`,
      expect: /is taken by the connector/,
    },
    {
      title: "break it on the node: a connector on a port that another program has, the control plane itself",
      command: `curl -s ${auth} ${json} -X POST ${config}/connectors -d ${connector(port)} | tee ${dir}/broken`,
      expect: /"id":"/,
    },
    {
      title: "the node says why; exit status 5",
      command: `${HOLDFAST} why ${run}`,
      expect: /address-in-use[^]*taken/,
      isEventual: true,
    },
    {
      title: "and nothing else suffers",
      command: `curl -s ${through}/ && ${HOLDFAST} connectors ${run}`,
      expect: /Hello[^]*listening[^]*failed[^]*address-in-use/,
    },
    {
      title: "take the broken one away",
      command: `curl -s ${auth} -X DELETE ${config}/connectors/${lostId}`,
      expect: /^\{\}$/m,
    },
    {
      title: "all is well again",
      command: `${HOLDFAST} why ${run}`,
      expect: /everything is as it should be/,
      isEventual: true,
    },
    {
      title: "kill -9 the agent in the middle of a large download through the connector; the demo starts it again",
      command: [
        `exec 3>&1; curl -s ${through}/large | { head -c 16M; kill -9 $(cat ${dir}/run/agent.pid)`,
        `head -c 16M; echo "the agent is killed, the download goes on" >&3`,
        `until ${HOLDFAST} connectors ${run} > ${dir}/connectors 2>&1; do sleep 0.2; done`,
        `echo "the agent is back, the download still goes on" >&3; cat; } > ${dir}/large`,
        `echo "$(sha256sum < ${dir}/large | cut -d ' ' -f 1)  the file as it arrived"; curl -s ${through}/large.sha256`,
      ].join("; "),
      expect: /download goes on\n.*still goes on\n([0-9a-f]{64}) +the file as it arrived\n\1 /,
    },
    {
      title: "the same overlay process served all the time, and the agent found it again",
      command: `${HOLDFAST} connectors ${run}`,
      expect: /listening[^]*flows \d+ now, [3-9] in all; .*6\d MB out/,
    },
  ];
}

function node({ dir, port }: Stage): readonly Stop[] {
  const run = `--run ${dir}/run`;
  return [
    { title: "the node about itself", command: `${HOLDFAST} status ${run}`, expect: /online/, isEventual: true },
    {
      title: "its health",
      command: `${HOLDFAST} health ${run}`,
      expect: /control-plane/,
    },
    {
      title: "the same diagnosis from the node's own command line",
      command: `${HOLDFAST} trigger tg-nc '{"host":"127.0.0.1","port":${port}}' ${run}`,
      expect: /succeeded/,
    },
    { title: "its log", command: `${HOLDFAST} logs -n 3 ${run}`, expect: /./ },
  ];
}
