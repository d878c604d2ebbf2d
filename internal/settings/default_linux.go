package settings

const defaultTransports = "shm"
