import { DIRECTORIES } from "../../frame/verb-options.ts";
import type { VerbSpec } from "../../frame/verb.ts";

export const controllerVerb: VerbSpec = {
  name: "controller",
  summary: "run a complete small control plane; back up, restore or migrate its store",
  about:
    "'backup FILE' writes the store, keys and certificates to a new file, also while the controller runs. 'restore FILE' puts them back " +
    "while it does not run. 'migrate --from STORE --to STORE' moves them between SQLite and PostgreSQL. The file holds private keys.",
  arguments: [
    {
      name: "task",
      isRequired: false,
      help: "backup, restore or migrate; without one the controller runs",
      complete: ["backup", "restore", "migrate"],
    },
    { name: "file", isRequired: false, help: "for backup and restore: the backup", complete: "file" },
  ],
  options: {
    listen: { value: "ADDRESS:PORT", help: "where to serve the HTTP API and the nodes (127.0.0.1:8480)" },
    data: { value: "DIR", help: "where its state lives (/var/lib/holdfast-controller)", complete: "directory" },
    "tls-cert": { value: "FILE", help: "certificate chain in PEM (self-made, except on loopback)", complete: "file" },
    "tls-key": { value: "FILE", help: "its private key in PEM", complete: "file" },
    tls: { help: "create a certificate and serve TLS on loopback too" },
    url: { value: "ORIGIN", help: "the address nodes dial (the one listened on)" },
    "front-pin": {
      value: "SHA256[,...]",
      help: "keys of the front end that ends TLS for an https --url, as base64url of SHA-256",
    },
    "trusted-proxy": {
      value: "ADDRESS[/BITS][,...]",
      help: "front ends whose X-Forwarded-For names the address of a client",
    },
    registry: { value: "ORIGIN", help: "the image registry, which takes this controller's tokens" },
    "registry-host": {
      value: "HOST[:PORT]",
      help: "what nodes call it in image references (the host of --registry)",
    },
    releases: {
      value: "DIR",
      help: "serve the files of this directory to anyone below /releases/",
      complete: "directory",
    },
    "geo-file": {
      value: "FILE",
      help: "geolocation database (MMDB) for the location of nodes, read again when it changes",
      complete: "file",
    },
    store: { value: "ADDRESS", help: "sqlite, or postgres://USER@HOST:PORT/DATABASE (sqlite)" },
    "store-password-file": { value: "FILE", help: "the password of the PostgreSQL user", complete: "file" },
    "store-ca-file": {
      value: "FILE",
      help: "the authorities of the PostgreSQL server's certificate, PEM (the system's)",
      complete: "file",
    },
    "node-keys": { value: "FORM", help: "public keys of nodes in the API: text (base64) or jwk (text)" },
    "secret-overlap": {
      value: "SECONDS",
      help: "how long the earlier secret of a service user stays valid beside a new one, at most 604800 (0)",
    },
    mock: { help: "answer each request with the documented example; any credential is accepted, nothing is kept" },
    from: { value: "STORE", help: "for migrate: the store that is moved, in the form of --store" },
    "from-password-file": { value: "FILE", help: "the password of its PostgreSQL user", complete: "file" },
    "from-ca-file": { value: "FILE", help: "the authorities of its server's certificate, PEM", complete: "file" },
    to: { value: "STORE", help: "for migrate: the store that is filled, in the form of --store" },
    "to-password-file": { value: "FILE", help: "the password of its PostgreSQL user", complete: "file" },
    "to-ca-file": { value: "FILE", help: "the authorities of its server's certificate, PEM", complete: "file" },
    "to-data": { value: "DIR", help: "for migrate: another data directory (that of --data)", complete: "directory" },
    replace: { help: "for restore and migrate: discard what the store and its keys were" },
    domain: { value: "FQDN", help: "the domain of the nodes, fixed at the first start (holdfast.example)" },
    state: { value: "DIR", help: "accepted as by every verb, and not used: see --data", complete: "directory" },
    run: { value: "DIR", help: "where its pid file goes (the directory of --data)", complete: "directory" },
    help: DIRECTORIES.help,
  },
  exits: ["ok", "failed", "usage"],
  example: "holdfast controller --listen 127.0.0.1:8480 --data /var/lib/holdfast-controller",
};
