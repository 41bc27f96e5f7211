{{- define "cdc-relay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 52 characters, so that names with -init behind them, and those of pods, are not too long. */}}
{{- define "cdc-relay.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "cdc-relay.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "cdc-relay.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* What selects the relay's pods. It never changes: a Deployment's selector cannot. */}}
{{- define "cdc-relay.selector" -}}
app.kubernetes.io/name: {{ include "cdc-relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cdc-relay.labels" -}}
{{ include "cdc-relay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* init's pods are not the relay's: the Service and the budget must not count them. */}}
{{- define "cdc-relay.initSelector" -}}
app.kubernetes.io/name: {{ include "cdc-relay.name" . }}-init
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cdc-relay.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- define "cdc-relay.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "cdc-relay.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The seconds of a duration of the configuration, read as Go reads it: 90s, 1m30s, 0.5h. A variable cannot be read here. */}}
{{- define "cdc-relay.seconds" -}}
{{- $units := dict "ns" 1e-9 "us" 1e-6 "µs" 1e-6 "μs" 1e-6 "ms" 1e-3 "s" 1.0 "m" 60.0 "h" 3600.0 }}
{{- $one := "([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h)" }}
{{- $sum := 0.0 }}
{{- if regexMatch (printf "^[+]?(%s)+$" $one) .value }}
{{- range regexFindAll $one .value -1 }}
{{- $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) (index $units (regexFind "[^0-9.]+$" .))) }}
{{- end }}
{{- else if not (regexMatch "^[+-]?0+$" .value) }}
{{- fail (printf "config.%s is %s, which the chart cannot read: write it as a number with a unit, such as 20s, 1m30s or 90000ms" .key .value) }}
{{- end }}
{{- $sum }}
{{- end }}

{{/* The configuration, after a look at what the values' schema cannot know. */}}
{{- define "cdc-relay.config" -}}
{{- $text := toYaml .Values.config }}
{{- if and .Values.configDir.enabled .Values.configDir.relays .Values.configDir.existingConfigMap }}
{{- fail "configDir has relays and existingConfigMap: choose one" }}
{{- end }}
{{- if and (not .Values.existingSecret) (contains (printf "%s/" .Values.secretMountPath) (cat $text (toYaml .Values.configDir.relays))) }}
{{- fail (printf "config names files in %s, and existingSecret is empty: name the Secret that has them" .Values.secretMountPath) }}
{{- end }}
{{- if and .Values.init.urlKey (not .Values.existingSecret) }}
{{- fail "init.urlKey is a key of existingSecret, which is empty" }}
{{- end }}
{{- range $relay := prepend (values .Values.configDir.relays) .Values.config }}
{{- $grace := toString (dig "shutdown_grace" "20s" $relay) }}
{{- $seconds := include "cdc-relay.seconds" (dict "key" "shutdown_grace" "value" $grace) | float64 }}
{{- if le (float64 $.Values.terminationGracePeriodSeconds) $seconds }}
{{- fail (printf "terminationGracePeriodSeconds is %v, and must be more than config.shutdown_grace, %s" $.Values.terminationGracePeriodSeconds $grace) }}
{{- end }}
{{- end }}
{{- if and .Values.configDir.enabled .Values.networkPolicy.enabled (not (and .Values.networkPolicy.postgres.ports .Values.networkPolicy.broker.ports)) }}
{{- fail "networkPolicy with configDir needs postgres.ports and broker.ports: the chart does not read them from several relays" }}
{{- end }}
{{- $text }}
{{- end }}

{{/* The flags that the process has for all relays of configDir: those of config.http and config.log. */}}
{{- define "cdc-relay.processFlags" -}}
{{- $flags := list }}
{{- range $section := list "http" "log" }}
{{- range $key, $value := index $.Values.config $section }}
{{- $flags = append $flags (printf "--%s-%s=%v" $section (replace "_" "-" $key) $value) }}
{{- end }}
{{- end }}
{{- with .Values.configDir.memory }}{{ $flags = append $flags (printf "--memory=%s" .) }}{{ end }}
{{- toJson $flags }}
{{- end }}

{{- define "cdc-relay.mounts" -}}
- {name: config, mountPath: {{ ternary "/etc/cdc-relay/relays" "/etc/cdc-relay" .Values.configDir.enabled }}, readOnly: true}
{{- if .Values.existingSecret }}
- {name: secrets, mountPath: {{ .Values.secretMountPath | quote }}, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cdc-relay.secretVolume" -}}
{{- if .Values.existingSecret }}
- name: secrets
  secret: {secretName: {{ .Values.existingSecret | quote }}, defaultMode: 0440}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where pods are put and what they may: the same for the relay and for init. */}}
{{- define "cdc-relay.placement" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The ports of the broker, as a list in JSON under ports. */}}
{{- define "cdc-relay.brokerPorts" -}}
{{- $sink := default "kafka" .Values.config.sink }}
{{- $usual := dict "kafka" (list 9092 9093) "nats" (list 4222) "redis-stream" (list 6379) "bullmq" (list 6379) "rabbitmq" (list 5671 5672) "rabbitmq-stream" (list 5551 5552) "webhook" (list 80 443) "sqs" (list 443) "sns" (list 443) "eventbridge" (list 443) "stdout" list }}
{{- $ports := list }}
{{- if .Values.networkPolicy.broker.ports }}
{{- $ports = .Values.networkPolicy.broker.ports }}
{{- else if eq $sink "kafka" }}
{{- $brokers := .Values.config.kafka.brokers }}
{{- if kindIs "string" $brokers }}{{ $brokers = splitList "," $brokers }}{{ end }}
{{- $unknown := false }}
{{- range $brokers }}
{{- $port := regexFind "[0-9]+$" (trim .) }}
{{- if $port }}{{ $ports = append $ports (int $port) }}{{ else }}{{ $unknown = true }}{{ end }}
{{- end }}
{{- if $unknown }}{{ $ports = concat $ports (index $usual $sink) }}{{ end }}
{{- $ports = uniq $ports }}
{{- end }}
{{- if not $ports }}{{ $ports = index $usual $sink }}{{ end }}
{{- toJson (dict "ports" $ports) }}
{{- end }}

{{/* The ports of Postgres: those of the hosts in the URLs, as a list in JSON under ports. A host without one has 5432. */}}
{{- define "cdc-relay.postgresPorts" -}}
{{- $config := .Values.config }}
{{- $ports := .Values.networkPolicy.postgres.ports }}
{{- if and (not $ports) (not .Values.configDir.enabled) }}
{{- range $url := list $config.postgres.url (default "" $config.postgres.replication_url) (dig "inbox" "url" "" $config) }}
{{- if contains "://" $url }}
{{- range splitList "," (regexReplaceAll "^[^:]*://([^/?]*@)?([^/?]*).*$" $url "${2}") }}
{{- $ports = append $ports (int (default "5432" (regexFind "[0-9]+$" (regexFind ":[0-9]+$" .)))) }}
{{- end }}
{{- else if $url }}
{{- range splitList "," (default "5432" (regexFind "[0-9,]+$" (regexFind "port *= *'?[0-9,]+" $url))) }}
{{- $ports = append $ports (int .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson (dict "ports" (uniq $ports)) }}
{{- end }}

{{- define "cdc-relay.egress" -}}
- ports:
    {{- range .Values.networkPolicy.dns.ports }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .Values.networkPolicy.dns.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
- ports:
    {{- range (include "cdc-relay.postgresPorts" . | fromJson).ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .Values.networkPolicy.postgres.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with (include "cdc-relay.brokerPorts" . | fromJson).ports }}
- ports:
    {{- range . }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with $.Values.networkPolicy.broker.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}
