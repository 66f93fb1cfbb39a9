/** Something that is wrong and stays so until somebody or something mends it. */
export interface Fault {
  readonly code: string;
  readonly message: string;
  readonly since: number;
}
