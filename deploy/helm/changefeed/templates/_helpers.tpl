{{- define "changefeed.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "changefeed.selector" -}}
app.kubernetes.io/name: changefeed
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "changefeed.labels" -}}
{{ include "changefeed.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "changefeed.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "changefeed.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "changefeed.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* What every pod has: no root, no writable image, no token, no variables of Services. */}}
{{- define "changefeed.pod" -}}
serviceAccountName: {{ include "changefeed.serviceAccount" . }}
automountServiceAccountToken: {{ .Values.automountServiceAccountToken }}
# Hosts read settings from variables; those that Kubernetes makes of Services are none.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "changefeed.container" -}}
image: {{ include "changefeed.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
ports:
  - { name: http, containerPort: {{ .Values.port }} }
env:
  - { name: CHANGEFEED_WEB__BIND, value: 0.0.0.0 }
  - { name: CHANGEFEED_WEB__PORT, value: {{ .Values.port | quote }} }
  {{- range $variable, $key := .Values.secretFiles.variables }}
  - { name: {{ $variable }}, value: /etc/changefeed/secrets/{{ $key }} }
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - { name: settings, mountPath: /etc/changefeed/settings, readOnly: true }
  {{- if .Values.secretFiles.secretName }}
  - { name: secrets, mountPath: /etc/changefeed/secrets, readOnly: true }
  {{- end }}
  - { name: tmp, mountPath: /tmp }
  {{- with .Values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "changefeed.volumes" -}}
- name: settings
  configMap: { name: {{ include "changefeed.name" . }} }
{{- if .Values.secretFiles.secretName }}
- name: secrets
  secret: { secretName: {{ .Values.secretFiles.secretName }}, defaultMode: 0440 }
{{- end }}
- name: tmp
  emptyDir: {}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
