/** Where the control plane reports. `pino` fits. Facts first, then the message. */
export interface Log {
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}
